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
    """The options that are set, named for the provider's system, without the model's name."""
    sampling = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_tokens": options.max_tokens,
    }
    set_options = {key: value for key, value in sampling.items() if value is not None}
    if options.reasoning_effort is not None:
        set_options |= _thinking(options.reasoning_effort, system)
    return set_options


def _thinking(effort: ReasoningEffort, system: str) -> Mapping[str, Any]:
    """The SDK has efforts for all providers, and budgets only for some."""
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


def tool_choice_of(choice: str) -> str | list[str]:
    name = choice.removeprefix("tool:")
    return choice if name == choice else [name]


def accepted_by(model: Model, settings: Mapping[str, Any]) -> ModelSettings:
    """The settings without those that the model would ignore with a warning."""
    accepted = {
        key: value for key, value in settings.items() if key not in model.unsupported_settings
    }
    return cast(ModelSettings, accepted)
