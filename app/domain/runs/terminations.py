"""How a run may end: the terminations, what is kept of one, and the one word for how it went."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, assert_never


@dataclass(frozen=True, slots=True)
class NaturalEnd:
    """The assistant answered without asking for tools."""


@dataclass(frozen=True, slots=True)
class BehaviorRequested:
    """A plugin asked for the end."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A limit or stop condition fired: `max_rounds`, …"""

    code: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    code: str
    detail: str


Termination: TypeAlias = NaturalEnd | BehaviorRequested | Stopped | Cancelled | Blocked | Failed

MAX_ROUNDS = "max_rounds"
WORKER_LOST = "worker_lost"
RATE_LIMIT_WAIT_EXCEEDED = "rate_limit_wait_exceeded"
SUSPENDED: Mapping[str, str] = {"type": "suspended"}
"""What an event shows where a record that waits has no termination."""


def termination_to_json(termination: Termination) -> dict[str, Any]:
    match termination:
        case NaturalEnd():
            return {"type": "natural_end"}
        case BehaviorRequested():
            return {"type": "behavior_requested"}
        case Stopped(code, detail):
            return _without_none({"type": "stopped", "code": code, "detail": detail})
        case Cancelled(reason):
            return _without_none({"type": "cancelled", "detail": reason})
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
    """The lifecycle's one-line reason for being done."""
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
    """One word for how it went, derived from the termination."""

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
"""The types of the terminations that have an outcome."""


def _without_none(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}
