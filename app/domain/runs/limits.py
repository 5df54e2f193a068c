"""RunLimits: what the caller of a run lets it use, what people have added since, and what it has used.

All counters are cumulative over the run, whatever suspensions, hand-overs and crashes lie in between.
A step is one inference with the calls that it asks for; a tool call counts once, when it is first handed
to its tool or becomes a task; wall seconds pass while a worker executes the run, not while it waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from app.domain.json_values import JsonObject
from app.domain.runs.runs import LIFECYCLE, RunRecord
from app.domain.runs.terminations import Stopped


class Limit(StrEnum):
    STEPS = "steps"
    TOKENS = "tokens"
    TOOL_CALLS = "tool_calls"
    WALL_SECONDS = "wall_seconds"


class OnLimit(StrEnum):
    """What happens when a limit is reached and the run would go on."""

    STOP = "stop"
    ASK = "ask"


Amount: TypeAlias = int | float

RAISED = "__runtime.limits"
"""Where a run's state keeps the limits that people have raised."""
USED = "__runtime.used"
"""Where it keeps the counter that has no place of its own."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What isn't named has no limit. `asked` are those of the start, `raised` the higher ones that count
    by now."""

    asked: Mapping[Limit, Amount] = field(default_factory=dict)
    on_limit: OnLimit = OnLimit.STOP
    raised: Mapping[Limit, Amount] = field(default_factory=dict)

    def of(self, limit: Limit) -> Amount | None:
        return self.raised.get(limit, self.asked.get(limit))

    def raised_by(self, limit: Limit, amount: Amount) -> "RunLimits":
        return replace(self, raised={**self.raised, limit: (self.of(limit) or 0) + amount})


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    steps: int = 0
    tokens: int = 0
    tool_calls: int = 0
    wall_seconds: float = 0.0

    def of(self, limit: Limit) -> Amount:
        match limit:
            case Limit.STEPS:
                return self.steps
            case Limit.TOKENS:
                return self.tokens
            case Limit.TOOL_CALLS:
                return self.tool_calls
            case Limit.WALL_SECONDS:
                return self.wall_seconds
            case _:
                assert_never(limit)


def limits_to_json(limits: RunLimits) -> dict[str, Amount]:
    """What counts by now."""
    return {limit.value: amount for limit in Limit if (amount := limits.of(limit)) is not None}


def limits_in_request(asked: JsonObject, on_limit: OnLimit) -> JsonObject:
    """How a run's request keeps what was asked; nothing when nothing was."""
    return {"limits": dict(asked), "on_limit": on_limit.value} if asked else {}


def limits_of(record: RunRecord) -> RunLimits:
    """As they count by now."""
    return RunLimits(
        asked=_amounts(record.request.get("limits", {})),
        on_limit=OnLimit(record.request.get("on_limit", OnLimit.STOP)),
        raised=_amounts(_extensions(record).get(RAISED, {})),
    )


def used_by(record: RunRecord) -> Used:
    """As of the last checkpoint; the time of workers that were lost since is counted, too."""
    extensions = _extensions(record)
    lifecycle = extensions.get(LIFECYCLE, {})
    lost = record.lost_seconds - lifecycle.get("lost_ms", 0) / 1000
    return Used(
        steps=record.steps,
        tokens=record.usage.input_tokens + record.usage.output_tokens,
        tool_calls=extensions.get(USED, {}).get("tool_calls", 0),
        wall_seconds=lifecycle.get("active_ms", 0) / 1000 + max(0.0, lost),
    )


def exhausted(limit: Limit, used: Amount, allowed: Amount, why: str = "") -> Stopped:
    """The end of a run that may use no more."""
    return Stopped(f"limit_{limit.value}", limit_sentence(limit, used, allowed) + why)


def limit_sentence(limit: Limit, used: Amount, allowed: Amount) -> str:
    """In words, for people."""
    if limit is Limit.WALL_SECONDS:
        return f"{used:.1f} of {allowed:g} seconds of executing were used"
    return f"{used} of {allowed} {limit.value.replace('_', ' ')} were used"


def _extensions(record: RunRecord) -> JsonObject:
    extensions: JsonObject = (record.run_state or {}).get("extensions", {})
    return extensions


def _amounts(raw: Mapping[str, Amount]) -> dict[Limit, Amount]:
    return {Limit(name): amount for name, amount in raw.items()}
