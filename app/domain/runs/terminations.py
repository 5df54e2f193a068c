"""Terminations: how a run may end, their JSON, and the outcome derived from them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias, assert_never

from msgspec import Struct

from app.domain.json_values import without_none


class NaturalEnd(Struct, frozen=True):
    """The assistant answered without asking for tools."""


class BehaviorRequested(Struct, frozen=True):
    """A plugin ended the run."""


class Stopped(Struct, frozen=True):
    """A limit or stop condition fired: `max_rounds`, …"""

    code: str
    detail: str | None = None


class Cancelled(Struct, frozen=True):
    reason: str | None = None


class Blocked(Struct, frozen=True):
    reason: str


class Failed(Struct, frozen=True):
    code: str
    detail: str


Termination: TypeAlias = NaturalEnd | BehaviorRequested | Stopped | Cancelled | Blocked | Failed

MAX_ROUNDS = "max_rounds"
WORKER_LOST = "worker_lost"
RATE_LIMIT_WAIT_EXCEEDED = "rate_limit_wait_exceeded"
SUSPENDED: Mapping[str, str] = {"type": "suspended"}
"""The termination in the `run_finish` of a suspension; the run's record has none."""


def termination_to_json(termination: Termination) -> dict[str, Any]:
    match termination:
        case NaturalEnd():
            return {"type": "natural_end"}
        case BehaviorRequested():
            return {"type": "behavior_requested"}
        case Stopped(code, detail):
            return without_none({"type": "stopped", "code": code, "detail": detail})
        case Cancelled(reason):
            return without_none({"type": "cancelled", "detail": reason})
        case Blocked(reason):
            return {"type": "blocked", "detail": reason}
        case Failed(code, detail):
            return {"type": "error", "code": code, "detail": detail}
        case _:
            assert_never(termination)


def termination_from_json(raw: Mapping[str, Any]) -> Termination:
    match raw.get("type"):
        case "natural_end":
            return NaturalEnd()
        case "behavior_requested":
            return BehaviorRequested()
        case "stopped":
            return Stopped(raw["code"], raw.get("detail"))
        case "cancelled":
            return Cancelled(raw.get("detail"))
        case "blocked":
            return Blocked(raw["detail"])
        case _:
            return Failed(raw.get("code", "error"), raw.get("detail", ""))


def status_reason(termination: Termination) -> str:
    """The one-line reason in a done run's lifecycle."""
    match termination:
        case NaturalEnd():
            return "natural"
        case BehaviorRequested():
            return "behavior_requested"
        case Stopped(code, _):
            return f"stopped:{code}"
        case Cancelled():
            return "cancelled"
        case Blocked(reason):
            return f"blocked:{reason}"
        case Failed():
            return "error"
        case _:
            assert_never(termination)


class Outcome(StrEnum):
    """How the run went, derived from its termination."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BUDGET_EXCEEDED = "budget_exceeded"
    BLOCKED = "blocked"


def outcome(termination: Termination) -> Outcome:
    match termination:
        case NaturalEnd() | BehaviorRequested():
            return Outcome.SUCCEEDED
        case Stopped():
            return Outcome.BUDGET_EXCEEDED
        case Cancelled():
            return Outcome.CANCELLED
        case Blocked():
            return Outcome.BLOCKED
        case Failed():
            return Outcome.FAILED
        case _:
            assert_never(termination)


TYPES_OF: Mapping[Outcome, tuple[str, ...]] = {
    Outcome.SUCCEEDED: ("natural_end", "behavior_requested"),
    Outcome.FAILED: ("error",),
    Outcome.CANCELLED: ("cancelled",),
    Outcome.BUDGET_EXCEEDED: ("stopped",),
    Outcome.BLOCKED: ("blocked",),
}
"""The termination types of each outcome."""
OUTCOME_OF_TYPE: Mapping[str, Outcome] = {
    type: outcome for outcome, types in TYPES_OF.items() for type in types
}
