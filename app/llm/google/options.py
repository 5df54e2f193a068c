"""The options of a model and of a request as fields of the Gemini API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.domain.inference.options import InferenceOptions, ReasoningEffort, ThinkingBudget
from app.domain.json_values import without_none
from app.llm.google.model_traits import LEVELS, GoogleTraits
from app.llm.google.native_tools import OPTION as NATIVE_TOOLS
from app.llm.google.native_tools import native_tools_of

_PREFIX = "google_"
_OTHER_NAMES = {
    "max_tokens": "maxOutputTokens",
    "video_resolution": "mediaResolution",
    "top_logprobs": "logprobs",
}
_GENERATION = frozenset(
    {"temperature", "topP", "topK", "maxOutputTokens", "candidateCount", "stopSequences", "seed"}
    | {"presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs", "mediaResolution"}
    | {"responseModalities", "responseMimeType", "responseSchema", "responseJsonSchema"}
    | {"speechConfig", "imageConfig", "thinkingConfig", "enableEnhancedCivicAnswers"}
)
"""The fields of `generationConfig`. All others are fields of the body."""
_NOT_SENT = frozenset(
    {"timeout", "max_retries", "logit_bias", "parallel_tool_calls", "cloud_service_tier"}
)
"""Options that mean something to other providers or to an SDK only."""
_TIERS = {"default": "standard", "auto": None}
_BUDGETS = {"minimal": 128, "low": 2_048, "medium": 8_192}
_MAX_BUDGET = 24_576
_LEAST_BUDGET = 128
"""For models that can't do without thinking."""
_SOME = "some"
"""Thinking without a word for how much."""

Body: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GoogleOptions:
    """The options of a model, sorted by where they go. Names may be those of pydantic-ai."""

    body: Mapping[str, Any]
    generation: Mapping[str, Any]
    """The fields of `generationConfig`."""
    effort: str | None
    """How much the model thinks, as a word. The model's traits say how to ask for that."""
    native_tools: tuple[Mapping[str, Any], ...]
    headers: Mapping[str, str] = field(repr=False)


def parameters_of(options: Mapping[str, Any], headers: Mapping[str, str]) -> GoogleOptions:
    """Read the `options` and `headers` of a model in the agents file. Unknown options go to the API as they are."""
    given = {name.removeprefix(_PREFIX): value for name, value in options.items()}
    native_tools = native_tools_of(given.pop(NATIVE_TOOLS, []))
    more_headers = given.pop("extra_headers", None) or {}
    given |= given.pop("extra_body", None) or {}
    effort = _word_of(given.pop("thinking")) if "thinking" in given else None
    if "service_tier" in given:
        tier = given["service_tier"]
        given["service_tier"] = _TIERS.get(tier, tier)
    if isinstance(given.get("logprobs"), bool):
        given["responseLogprobs"] = given.pop("logprobs")
    fields = {
        _name_of(name): value
        for name, value in given.items()
        if name not in _NOT_SENT and value is not None
    }
    generation = dict(fields.pop("generationConfig", {}))
    for name in _GENERATION & fields.keys():
        generation[name] = fields.pop(name)
    if isinstance(thinking := generation.get("thinkingConfig"), Mapping):
        generation["thinkingConfig"] = {_name_of(name): each for name, each in thinking.items()}
    return GoogleOptions(
        fields, generation, effort, tuple(native_tools), {**more_headers, **headers}
    )


def _word_of(thinking: bool | str) -> str:
    if isinstance(thinking, str):
        return thinking
    return _SOME if thinking else "none"


def _name_of(option: str) -> str:
    """The API's name of an option: `topK` for `top_k`."""
    if option in _OTHER_NAMES:
        return _OTHER_NAMES[option]
    first, *others = option.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def generation_of(
    parameters: GoogleOptions, options: InferenceOptions, traits: GoogleTraits
) -> Body:
    """The field `generationConfig` as far as options decide it. The options of the request win."""
    generation: Body = {
        "responseModalities": ["TEXT", "IMAGE"] if traits.writes_images else ["TEXT"],
        **parameters.generation,
        **without_none(
            {
                "temperature": options.temperature,
                "topP": options.top_p,
                "maxOutputTokens": options.max_tokens,
            }
        ),
    }
    effort: ReasoningEffort | str | None = options.reasoning_effort
    if effort is None and "thinkingConfig" not in generation:
        effort = parameters.effort
    if effort is not None and (thinking := _thinking(effort, traits)) is not None:
        generation["thinkingConfig"] = thinking
    return generation


def _thinking(effort: ReasoningEffort | str, traits: GoogleTraits) -> Body | None:
    """The field `thinkingConfig` for this effort; None if the model doesn't think."""
    if isinstance(effort, ThinkingBudget):
        return {"thinkingBudget": effort.tokens}
    if not traits.thinks:
        return None
    if effort == _SOME:
        return {"includeThoughts": True}
    if traits.takes_levels:
        level = _nearest_level(effort, traits)
        return (
            {"thinkingLevel": level}
            if effort == "none"
            else {"includeThoughts": True, "thinkingLevel": level}
        )
    if effort == "none":
        return {"thinkingBudget": _LEAST_BUDGET if traits.always_thinks else 0}
    return {"includeThoughts": True, "thinkingBudget": _BUDGETS.get(effort, _MAX_BUDGET)}


def _nearest_level(effort: str, traits: GoogleTraits) -> str:
    """The level that is nearest to the effort; of two the lower one."""
    known = {"none": 0, "minimal": 0, "low": 1, "medium": 2}
    wanted = known.get(effort, len(LEVELS) - 1)
    levels = [place for place, level in enumerate(LEVELS) if level in traits.levels]
    return LEVELS[min(levels, key=lambda place: (abs(place - wanted), place))]
