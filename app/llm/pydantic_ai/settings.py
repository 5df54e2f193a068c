"""InferenceOptions as settings of pydantic-ai."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from app.domain.inference.options import (
    InferenceOptions,
    ReasoningEffort,
    ThinkingBudget,
    nearest_effort,
)


def settings_of(options: InferenceOptions, system: str) -> dict[str, Any]:
    """What was asked for, in the words for a provider's system; the model's name is another matter."""
    sampling = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_tokens": options.max_tokens,
    }
    said = {key: value for key, value in sampling.items() if value is not None}
    if options.reasoning_effort is not None:
        said |= _thinking(options.reasoning_effort, system)
    return said


def _thinking(effort: ReasoningEffort, system: str) -> Mapping[str, Any]:
    """The SDK knows efforts for all providers, and budgets only in some providers' own words."""
    match effort:
        case ThinkingBudget(tokens) if system == "anthropic":
            return {"anthropic_thinking": {"type": "enabled", "budget_tokens": tokens}}
        case ThinkingBudget(tokens) if system.startswith("google"):
            return {"google_thinking_config": {"thinking_budget": tokens}}
        case ThinkingBudget():
            return {"thinking": nearest_effort(effort)}
        case "none":
            return {"thinking": False}
        case _:
            return {"thinking": effort}


def accepted_by(model: Model, settings: Mapping[str, Any]) -> ModelSettings:
    """The settings without those that the model would warn of and ignore."""
    accepted = {
        key: value for key, value in settings.items() if key not in model.unsupported_settings
    }
    return cast(ModelSettings, accepted)
