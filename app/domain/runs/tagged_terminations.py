"""Terminations in the shape of other runtimes: `{"type": …, "value": …}`, read and written here only.

That shape has less room than ours. What it can't hold is left out on the way there; nothing is guessed
on the way back.
"""

from collections.abc import Mapping
from typing import Any, assert_never

from app.domain.json_values import as_object
from app.domain.runs.terminations import (
    BehaviorRequested,
    Blocked,
    Cancelled,
    Failed,
    NaturalEnd,
    Stopped,
    Termination,
)


def tagged(termination: Termination) -> dict[str, Any]:
    """The tag and its value; those that have none have no key for it either."""
    match termination:
        case NaturalEnd():
            return {"type": "natural_end"}
        case BehaviorRequested():
            return {"type": "behavior_requested"}
        case Stopped(code, None):
            return {"type": "stopped", "value": {"code": code}}
        case Stopped(code, detail):
            return {"type": "stopped", "value": {"code": code, "detail": detail}}
        case Cancelled():
            return {"type": "cancelled"}
        case Blocked(reason):
            return {"type": "blocked", "value": reason}
        case Failed(_, detail):
            return {"type": "error", "value": detail}
        case _:
            assert_never(termination)


def from_tagged(raw: Mapping[str, Any]) -> Termination:
    """The termination that is meant; a tag that isn't known is an error that says so."""
    value = raw.get("value")
    match raw.get("type"):
        case "natural_end":
            return NaturalEnd()
        case "behavior_requested" | "plugin_requested":
            return BehaviorRequested()
        case "stopped":
            reason = as_object(value) or {}
            return Stopped(str(reason.get("code", "unknown")), reason.get("detail"))
        case "cancelled":
            return Cancelled()
        case "blocked":
            return Blocked("" if value is None else str(value))
        case "error":
            return Failed("error", "" if value is None else str(value))
        case other:
            return Failed("unknown_termination", f"an end of the kind {other!r}")


def from_done_reason(reason: str) -> Termination:
    """The termination behind a lifecycle's one-line reason; prefixes may have been put on repeatedly."""
    match reason:
        case "natural":
            return NaturalEnd()
        case "behavior_requested":
            return BehaviorRequested()
        case "cancelled":
            return Cancelled()
    kind, colon, rest = reason.partition(":")
    while colon and rest.startswith(f"{kind}:"):
        rest = rest.removeprefix(f"{kind}:")
    match kind if colon else "":
        case "blocked":
            return Blocked(rest)
        case "stopped":
            return Stopped(rest)
        case "error":
            return Failed("error", rest)
        case _:
            return Failed("error", reason)
