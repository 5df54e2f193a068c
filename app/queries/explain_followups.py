"""Sentences about a run's failed follow-ups: what failed, and what to do about it."""

from typing import assert_never

from app.domain.children.followups import (
    AbortRemote,
    CallRunEnd,
    ChildFollowup,
    FailedFollowup,
    FollowupKind,
)
from app.domain.timestamps import format_timestamp


def is_failing(failed: FailedFollowup) -> str:
    what, _ = _description(failed)
    return (
        f"{what} has failed {_times(failed)} and is retried at {format_timestamp(failed.next_at)}. "
        "The server's log says why."
    )


def was_given_up(failed: FailedFollowup) -> str:
    what, consequence = _description(failed)
    return (
        f"{what} was given up after it failed {_times(failed)}. The server's log says why. "
        f"{consequence}"
    )


def _times(failed: FailedFollowup) -> str:
    return "once" if failed.tries == 1 else f"{failed.tries} times"


def _description(failed: FailedFollowup) -> tuple[str, str]:
    """What the follow-up does, and the consequence if it isn't done."""
    match failed.followup:
        case AbortRemote():
            return (
                "Aborting the turn of the remote agent",
                "The remote agent may still be working.",
            )
        case CallRunEnd():
            return (
                "Calling the run_end hooks of its agent's plugins",
                "They aren't called any more. The run itself has ended as its record says.",
            )
        case ChildFollowup(kind=kind, child_run_id=child):
            return _about_child(kind, f"run {child}", f"/v1/runs/{child}")
        case _:
            assert_never(failed.followup)


def _about_child(kind: FollowupKind, child: str, path: str) -> tuple[str, str]:
    match kind:
        case FollowupKind.START:
            return (
                f"Starting {child} of another agent",
                "The call or task that waited for it got an error instead.",
            )
        case FollowupKind.REPORT_TO_PARENT:
            return (
                f"Reporting the result of {child}",
                f"The call or task that waited for it got an error instead. GET {path} shows its result.",
            )
        case FollowupKind.CANCEL:
            return (
                f"Cancelling {child}, whose parent doesn't wait for it any more",
                f"It may still execute. Cancel it with POST {path}/cancel.",
            )
        case FollowupKind.SHOW_TICKETS:
            return (
                f"Showing the tickets of {child} on this run's stream",
                f"Decide them in the inbox: GET /v1/tickets?run_id={path.rpartition('/')[2]}.",
            )
        case FollowupKind.FORWARD_MESSAGES:
            return (
                f"Forwarding messages to {child}",
                f"They stay unread. Send what it has to know with POST {path}/inputs.",
            )
        case FollowupKind.DELETE:
            return (
                f"Deleting {child}, which should not be kept",
                f"It still exists. GET {path} names its thread, which can be deleted.",
            )
        case _:
            assert_never(kind)
