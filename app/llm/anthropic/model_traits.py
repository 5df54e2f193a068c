"""What each of Anthropic's models accepts. The API refuses a parameter that the model doesn't know."""

from functools import lru_cache
from typing import Literal

from msgspec import Struct

_EFFORT_ONLY = (
    "claude-fable-5",
    "claude-mythos-5",
    "claude-opus-4-7",
    "claude-opus-4-8",
    "claude-opus-5",
    "claude-sonnet-5",
    "claude-haiku-5-5",
)
"""They think as much as an effort says, and refuse budgets and sampling parameters."""
_ADAPTIVE = (*_EFFORT_ONLY, "claude-opus-4-6", "claude-sonnet-4-6")
_THINKING_BY_DEFAULT = (
    "claude-fable-5",
    "claude-mythos-5",
    "claude-mythos-preview",
    "claude-opus-5",
    "claude-sonnet-5",
    "claude-haiku-5-5",
)
_ALWAYS_THINKING = (
    "claude-fable-5",
    "claude-mythos-5",
    "claude-mythos-preview",
    "claude-opus-5-5",
)
_SYSTEM_MESSAGES = (
    "claude-fable-5",
    "claude-mythos-5",
    "claude-opus-4-8",
    "claude-opus-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
)
_UNFORCED = ("claude-fable-5-1", "claude-mythos-5-1", "claude-opus-5-5", "claude-sonnet-5-5")
_BOUND_THOUGHTS = ("claude-fable-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
_MEDIUM = ("claude-haiku-4-5", "claude-opus-4-5", "claude-sonnet-4-5")
_SMALL = (
    "claude-3",
    "claude-4-",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2",
    "claude-opus-4@",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",
    "claude-sonnet-4@",
)
_SMALL_NAMES = ("claude-opus-4", "claude-sonnet-4")

ThinkingOff = Literal["disabled", "between_tools"]


class ModelTraits(Struct, frozen=True, kw_only=True):
    max_tokens: int
    """The limit of an answer if the request has none. The API needs one."""
    is_adaptive: bool
    """Whether it decides itself how much to think; others need a budget."""
    takes_effort: bool
    takes_max_effort: bool
    takes_budgets: bool
    takes_sampling: bool
    thinks_by_default: bool
    always_thinks: bool
    thinking_off: ThinkingOff
    """How thinking is switched off, of a model that thinks by default."""
    can_be_forced: bool
    """Whether a request may demand a call."""
    binds_thoughts: bool
    """Whether a thought is refused once anything before it has changed."""
    has_system_messages: bool
    """Whether system messages may stand in the conversation."""
    mistakes_system_for_result: bool
    """Whether it takes a system message right after a tool's result for a part of that."""
    has_native_output: bool


@lru_cache(maxsize=256)
def traits_of(model: str) -> ModelTraits:
    """The traits of the model of this name. An unknown one gets what all models accept."""
    is_adaptive = model.startswith((*_ADAPTIVE, "claude-mythos-preview"))
    return ModelTraits(
        max_tokens=_max_tokens(model),
        is_adaptive=is_adaptive,
        takes_effort=model.startswith((*_ADAPTIVE, "claude-opus-4-5")),
        takes_max_effort=not model.startswith("claude-opus-4-5"),
        takes_budgets=not model.startswith(_EFFORT_ONLY),
        takes_sampling=not model.startswith(_EFFORT_ONLY),
        thinks_by_default=model.startswith(_THINKING_BY_DEFAULT),
        always_thinks=model.startswith(_ALWAYS_THINKING),
        thinking_off="between_tools" if model.startswith("claude-sonnet-5-5") else "disabled",
        can_be_forced=not model.startswith(_UNFORCED),
        binds_thoughts=model.startswith(_BOUND_THOUGHTS),
        has_system_messages=model.startswith(_SYSTEM_MESSAGES),
        mistakes_system_for_result=model.startswith("claude-haiku-5-5"),
        has_native_output=model.startswith((*_ADAPTIVE, *_MEDIUM, "claude-opus-4-1")),
    )


def _max_tokens(model: str) -> int:
    """The most that the model writes. Older models refuse a limit beyond their context window, so they get less."""
    if model in _SMALL_NAMES or model.startswith(_SMALL):
        return 4_096
    if model.startswith(_ADAPTIVE):
        return 128_000
    return 64_000 if model.startswith(_MEDIUM) else 16_384
