"""Options of an inference, which agents set and runs override, and the retry policy."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from app.domain.json_values import JsonObject, as_object, without_none
from app.domain.structs import replace

EffortName: TypeAlias = Literal["none", "low", "medium", "high", "max"]


class ThinkingBudget(Struct, frozen=True):
    """The most tokens for the model's reasoning."""

    tokens: int


ReasoningEffort: TypeAlias = EffortName | ThinkingBudget


def nearest_effort(budget: ThinkingBudget) -> EffortName:
    """The effort nearest to a budget, for providers without budgets."""
    if budget.tokens <= 2048:
        return "low"
    return "medium" if budget.tokens <= 10_000 else "high"


class InferenceOptions(Struct, frozen=True, kw_only=True):
    """An option of None leaves the value to the agent, the model's configuration or the provider.

    `upstream_model` is the provider's name of a model to use instead of the configured one.
    """

    upstream_model: str | None = None
    fallback_upstream_models: tuple[str, ...] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    reasoning_effort: ReasoningEffort | None = None

    def overridden_by(self, later: "InferenceOptions") -> "InferenceOptions":
        """The options with each field that `later` sets."""
        if later is NO_OPTIONS:
            return self
        return replace(self, **without_none(asdict(later)))


NO_OPTIONS = InferenceOptions()
MAX_ANSWER_BYTES = 4_000_000
"""Default maximum of what a model may stream for one answer."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """The number of retries, and the pauses between them in seconds."""

    max_retries: int = 2
    fallback_upstream_models: tuple[str, ...] = ()
    backoff_base: float = 0.5
    overloaded_backoff_base: float = 2.0
    max_backoff: float = 8.0
    max_stream_retries: int = 2
    stream_idle_timeout: float = 60.0
    max_continuation_retries: int = 2


def models_in_order(own: str, options: InferenceOptions, policy: RetryPolicy) -> list[str]:
    """The requested model and its fallbacks, each once. `own` is the agent's model."""
    fallbacks = options.fallback_upstream_models
    if fallbacks is None:
        fallbacks = policy.fallback_upstream_models
    return list(dict.fromkeys([options.upstream_model or own, *fallbacks]))


def options_to_json(options: InferenceOptions) -> dict[str, Any]:
    """The wire format, without unset options."""
    body = without_none(asdict(options))
    if isinstance(options.reasoning_effort, ThinkingBudget):
        body["reasoning_effort"] = {"budget": options.reasoning_effort.tokens}
    if options.fallback_upstream_models is not None:
        body["fallback_upstream_models"] = list(options.fallback_upstream_models)
    return body


def options_from_json(raw: JsonObject) -> InferenceOptions:
    """The stored options."""
    body = dict(raw)
    if (budget := as_object(body.get("reasoning_effort"))) is not None:
        body["reasoning_effort"] = ThinkingBudget(budget["budget"])
    if (fallbacks := body.get("fallback_upstream_models")) is not None:
        body["fallback_upstream_models"] = tuple(fallbacks)
    return InferenceOptions(**body)
