"""RunLimits: the limits of a run's start, their raises by people, and the run's usage.

All counters are cumulative over the run, across suspensions, hand-overs and crashes. A step is one inference
with its calls. A tool call counts once, when it is first handed to its tool or becomes a task. Wall seconds
count while a worker executes the run, not while it waits. Cost is in US dollars, by the usage ledger.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias, assert_never

from msgspec import Struct

from app.domain.json_values import JsonObject
from app.domain.runs.runs import LIFECYCLE, RunRecord
from app.domain.runs.terminations import Stopped
from app.domain.structs import replace
from app.domain.usage.billed_requests import usd


class Limit(StrEnum):
    STEPS = "steps"
    TOKENS = "tokens"
    TOOL_CALLS = "tool_calls"
    WALL_SECONDS = "wall_seconds"
    COST_USD = "cost_usd"


class OnLimit(StrEnum):
    """What happens when the run reaches a limit and would continue."""

    STOP = "stop"
    ASK = "ask"


Amount: TypeAlias = int | float

RAISED = "__runtime.limits"
"""Key of the raised limits in a run's state."""
USED = "__runtime.used"
"""Key of the counters of tool calls and cost in a run's state."""


class RunLimits(Struct, frozen=True):
    """The limits of a run; a missing one is unlimited. `asked` are those of the start, `raised` the higher
    ones that replace them."""

    requested: Mapping[Limit, Amount] = {}
    on_limit: OnLimit = OnLimit.STOP
    raised: Mapping[Limit, Amount] = {}

    def of(self, limit: Limit) -> Amount | None:
        return self.raised.get(limit, self.requested.get(limit))

    def raised_by(self, limit: Limit, amount: Amount) -> "RunLimits":
        return replace(
            self, raised={**self.raised, limit: round((self.of(limit) or 0) + amount, 6)}
        )


class Used(Struct, frozen=True, kw_only=True):
    steps: int = 0
    tokens: int = 0
    tool_calls: int = 0
    wall_seconds: float = 0.0
    cost_usd: float = 0.0

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
            case Limit.COST_USD:
                return self.cost_usd
            case _:
                assert_never(limit)


def limits_to_json(limits: RunLimits) -> dict[str, Amount]:
    """The current limits."""
    return {limit.value: amount for limit in Limit if (amount := limits.of(limit)) is not None}


def limits_in_request(requested: JsonObject, on_limit: OnLimit) -> JsonObject:
    """The limits as a run's request stores them; empty without limits."""
    return {"limits": dict(requested), "on_limit": on_limit.value} if requested else {}


def limits_of(record: RunRecord) -> RunLimits:
    """The current limits of a run."""
    return RunLimits(
        requested=_amounts(record.request.get("limits", {})),
        on_limit=OnLimit(record.request.get("on_limit", OnLimit.STOP)),
        raised=_amounts(_extensions(record).get(RAISED, {})),
    )


def cost_micros_of(record: RunRecord) -> int:
    """The run's cost as of the last checkpoint, as far as its models have prices."""
    micros: int = _extensions(record).get(USED, {}).get("cost_micros", 0)
    return micros


def unpriced_requests_of(record: RunRecord) -> int:
    """The number of requests to models without a price, of a run with a limit of its cost."""
    requests: int = _extensions(record).get(USED, {}).get("unpriced_requests", 0)
    return requests


def used_by(record: RunRecord) -> Used:
    """The usage as of the last checkpoint, plus the time of workers that were lost since."""
    extensions = _extensions(record)
    lifecycle = extensions.get(LIFECYCLE, {})
    lost = record.lost_seconds - lifecycle.get("lost_ms", 0) / 1000
    return Used(
        steps=record.steps,
        tokens=record.usage.input_tokens + record.usage.output_tokens,
        tool_calls=extensions.get(USED, {}).get("tool_calls", 0),
        wall_seconds=lifecycle.get("active_ms", 0) / 1000 + max(0.0, lost),
        cost_usd=usd(cost_micros_of(record)),
    )


def exhausted(limit: Limit, used: Amount, allowed: Amount, why: str = "") -> Stopped:
    """The termination of a run that has reached a limit."""
    return Stopped(f"limit_{limit.value}", limit_sentence(limit, used, allowed) + why)


def limit_sentence(limit: Limit, used: Amount, allowed: Amount) -> str:
    """The usage in words, for people."""
    if limit is Limit.WALL_SECONDS:
        return f"{used:.1f} of {allowed:g} seconds of executing were used"
    if limit is Limit.COST_USD:
        return f"{_dollars(used)} of {_dollars(allowed)} were used"
    return f"{used} of {allowed} {limit.value.replace('_', ' ')} were used"


def _dollars(amount: Amount) -> str:
    """The amount with two digits, or with as many as a small one needs."""
    text = f"{amount:.6f}".rstrip("0")
    return f"${text}" if len(text.partition(".")[2]) >= 2 else f"${amount:.2f}"


def _extensions(record: RunRecord) -> JsonObject:
    extensions: JsonObject = (record.run_state or {}).get("extensions", {})
    return extensions


def _amounts(raw: Mapping[str, Amount]) -> dict[Limit, Amount]:
    return {Limit(name): amount for name, amount in raw.items()}
