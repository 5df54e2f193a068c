"""How a model is asked: options that agents set and runs override, and when it is asked again."""

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from app.domain.json_values import JsonObject, as_object

EffortName: TypeAlias = Literal["none", "low", "medium", "high", "max"]
EFFORTS: tuple[EffortName, ...] = get_args(EffortName)


@dataclass(frozen=True, slots=True)
class ThinkingBudget:
    """Tokens that a model may think with."""

    tokens: int


ReasoningEffort: TypeAlias = EffortName | ThinkingBudget


def nearest_effort(budget: ThinkingBudget) -> EffortName:
    """The effort that comes nearest to a budget, for providers that take no number."""
    if budget.tokens <= 2048:
        return "low"
    return "medium" if budget.tokens <= 10_000 else "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceOptions:
    """What is None is left as it is: to the agent, its model's configuration, or the provider.

    `upstream_model` is the provider's own name of a model, asked for instead of the configured one.
    """

    upstream_model: str | None = None
    fallback_upstream_models: tuple[str, ...] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    reasoning_effort: ReasoningEffort | None = None

    def overridden_by(self, later: "InferenceOptions") -> "InferenceOptions":
        """Field by field, the later one wins where it says something."""
        if later is NO_OPTIONS:
            return self
        said = {
            field.name: value
            for field in fields(self)
            if (value := getattr(later, field.name)) is not None
        }
        return InferenceOptions(**{**_set_fields(self), **said})


NO_OPTIONS = InferenceOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a model is asked again, and how long is waited in between. Seconds."""

    max_retries: int = 2
    fallback_upstream_models: tuple[str, ...] = ()
    backoff_base: float = 0.5
    overloaded_backoff_base: float = 2.0
    max_backoff: float = 8.0
    max_stream_retries: int = 2
    stream_idle_timeout: float = 60.0
    max_continuation_retries: int = 2


def _set_fields(options: InferenceOptions) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in fields(options)}


def options_to_json(options: InferenceOptions) -> dict[str, Any]:
    """The wire shape; what isn't set is left out."""
    body = {name: value for name, value in _set_fields(options).items() if value is not None}
    if isinstance(options.reasoning_effort, ThinkingBudget):
        body["reasoning_effort"] = {"budget": options.reasoning_effort.tokens}
    if options.fallback_upstream_models is not None:
        body["fallback_upstream_models"] = list(options.fallback_upstream_models)
    return body


def options_from_json(raw: JsonObject) -> InferenceOptions:
    """Options as they were stored."""
    body = dict(raw)
    if (budget := as_object(body.get("reasoning_effort"))) is not None:
        body["reasoning_effort"] = ThinkingBudget(budget["budget"])
    if (fallbacks := body.get("fallback_upstream_models")) is not None:
        body["fallback_upstream_models"] = tuple(fallbacks)
    return InferenceOptions(**body)
