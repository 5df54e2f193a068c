"""The options of a model and of a request as parameters of the Messages API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.domain.inference.options import (
    InferenceOptions,
    ReasoningEffort,
    ThinkingBudget,
    nearest_effort,
)
from app.domain.json_values import without_none
from app.llm.anthropic.model_traits import ModelTraits
from app.llm.anthropic.native_tools import OPTION as NATIVE_TOOLS
from app.llm.anthropic.native_tools import native_tools_of

SAMPLING = ("temperature", "top_p", "top_k")
THINKING_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_BETAS_OF_PARAMETERS = {
    "context_management": "compact-2026-01-12",
    "task_budget": "task-budgets-2026-03-13",
}
_FAST_BETA = "fast-mode-2026-02-01"
_BUDGETS = {"some": 10_000, "minimal": 1_024, "low": 2_048, "medium": 10_000, "high": 16_384}
_MAX_BUDGET = 32_768
_SOME = "some"
"""Thinking without a word for how much."""
_TOKENS_BESIDE_BUDGET = 4_096
"""The default limit leaves so much room for the answer beside a budget for thinking."""
_PREFIX = "anthropic_"
_MARKERS = ("cache", "cache_tool_definitions", "cache_instructions", "cache_messages")
_NOT_SENT = frozenset(
    {"timeout", "max_retries", "seed", "logit_bias", "presence_penalty", "frequency_penalty"}
    | {"cache_diagnostics", "code_execution_tool_version", "web_tools_allowed_callers"}
)
"""Options that mean something to other providers or to an SDK only."""

Body: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConfiguredOptions:
    """The options of a model, sorted by where they go. Names may have the prefix `anthropic_`."""

    body: Mapping[str, Any]
    """ConfiguredOptions that go into each request as they are."""
    output_config: Mapping[str, Any]
    effort: str | None
    """How much the model thinks, as a word. The model's traits say how to ask for that."""
    cache: Mapping[str, Any] | None
    """The cache markers that the options ask for; None for the usual ones."""
    parallel_calls: bool | None
    streams_arguments_early: bool
    cites_documents: bool
    betas: frozenset[str]
    headers: Mapping[str, str] = field(repr=False)


def parameters_of(options: Mapping[str, Any], headers: Mapping[str, str]) -> ConfiguredOptions:
    """Read the `options` and `headers` of a model in the agents file. Unknown options go to the API as they are."""
    given = {name.removeprefix(_PREFIX): value for name, value in options.items()}
    given |= given.pop("extra_body", None) or {}
    native_tools, native_betas = native_tools_of(given.pop(NATIVE_TOOLS, []))
    if native_tools:
        given["tools"] = [*native_tools, *(given.get("tools") or ())]
    own_headers = {**(given.pop("extra_headers", None) or {}), **headers}
    named_betas = _listed(own_headers)
    cache = {name: given.pop(name) for name in _MARKERS if name in given}
    has_own = bool(cache) or "cache_control" in given
    is_word = isinstance(given.get("thinking"), bool | str)
    effort = _word_of(given.pop("thinking")) if is_word else None
    if given.get("service_tier") == "default":
        given["service_tier"] = "standard_only"
    output = dict(given.pop("output_config", None) or {})
    for name in ("effort", "task_budget"):
        if (value := given.pop(name, None)) is not None:
            output[name] = value
    return ConfiguredOptions(
        body={
            name: value
            for name, value in given.items()
            if name not in (*_OWN_PLACES, *_NOT_SENT) and value is not None
        },
        output_config=output,
        effort=effort,
        cache=cache if has_own else None,
        parallel_calls=given.get("parallel_tool_calls"),
        streams_arguments_early=bool(given.get("eager_input_streaming")),
        cites_documents=bool(given.get("citations")),
        betas=frozenset([*_betas_of({**given, **output}), *native_betas, *named_betas]),
        headers=own_headers,
    )


_OWN_PLACES = ("parallel_tool_calls", "eager_input_streaming", "citations", "betas")


def _word_of(thinking: bool | str) -> str:
    if isinstance(thinking, str):
        return thinking
    return _SOME if thinking else "none"


def _betas_of(given: Mapping[str, Any]) -> list[str]:
    """The betas that these parameters need, and those that are named."""
    betas = [beta for name, beta in _BETAS_OF_PARAMETERS.items() if given.get(name)]
    thinking = given.get("thinking")
    if isinstance(thinking, Mapping) and "block_binding" in thinking:
        betas.append(THINKING_BINDING_BETA)
    if given.get("speed") == "fast":
        betas.append(_FAST_BETA)
    return [*betas, *map(str, given.get("betas") or ())]


def _listed(headers: dict[str, str]) -> list[str]:
    """The betas of a header, which is taken out."""
    names = [name for name in headers if name.lower() == "anthropic-beta"]
    return [beta.strip() for name in names for beta in headers.pop(name).split(",")]


def body_of(parameters: ConfiguredOptions, options: InferenceOptions, traits: ModelTraits) -> Body:
    """The body's fields that options decide. The options of the request win."""
    body: Body = {"max_tokens": None, **parameters.body}
    if not traits.takes_sampling:
        body = {name: value for name, value in body.items() if name not in SAMPLING}
    output = dict(parameters.output_config)
    effort: ReasoningEffort | str | None = options.reasoning_effort or parameters.effort
    if effort is not None:
        body["thinking"], level = _thinking(effort, traits)
        if options.reasoning_effort is not None:
            output["effort"] = level
        else:
            output.setdefault("effort", level)
    body |= _sampling(options, traits)
    body["max_tokens"] = options.max_tokens or body["max_tokens"] or _limit(body, traits)
    body["output_config"] = without_none(output) or None
    return without_none(body)


def _sampling(options: InferenceOptions, traits: ModelTraits) -> Body:
    if not traits.takes_sampling:
        return {}
    return without_none({"temperature": options.temperature, "top_p": options.top_p})


def _limit(body: Body, traits: ModelTraits) -> int:
    """The limit of an answer, which counts its thoughts too."""
    budget = (body.get("thinking") or {}).get("budget_tokens")
    room = _TOKENS_BESIDE_BUDGET + budget if isinstance(budget, int) else 0
    return max(traits.max_tokens, room)


def _thinking(effort: ReasoningEffort | str, traits: ModelTraits) -> tuple[Body | None, str | None]:
    """The fields `thinking` and `output_config.effort` for this effort."""
    if isinstance(effort, ThinkingBudget):
        if traits.takes_budgets:
            return {"type": "enabled", "budget_tokens": effort.tokens}, None
        effort = nearest_effort(effort)
    if effort == "none":
        return _no_thinking(traits)
    level = _level(effort, traits) if traits.takes_effort else None
    if traits.is_adaptive:
        return {"type": "adaptive"}, level
    return {"type": "enabled", "budget_tokens": _BUDGETS.get(effort, _MAX_BUDGET)}, level


def _no_thinking(traits: ModelTraits) -> tuple[Body | None, str | None]:
    """As little thinking as the model can do."""
    if traits.always_thinks:
        return ({"type": "adaptive"}, "low") if traits.takes_effort else (None, None)
    return ({"type": traits.thinking_off} if traits.thinks_by_default else None), None


def _level(effort: str, traits: ModelTraits) -> str | None:
    if effort == _SOME:
        return None
    if effort == "minimal":
        return "low"
    if effort == "xhigh" and traits.takes_budgets:
        effort = "max"
    return "high" if effort == "max" and not traits.takes_max_effort else effort
