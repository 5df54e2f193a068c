"""What has failed on a run's behalf beside the run itself, in words that say what to do about it."""

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
    what, _ = _words(failed)
    return (
        f"{what} has failed {_times(failed)}, and is tried again at {format_timestamp(failed.next_at)}; "
        "the server's log says why."
    )


def was_given_up(failed: FailedFollowup) -> str:
    what, now = _words(failed)
    return f"{what} was given up after it had failed {_times(failed)}; the server's log says why. {now}"


def _times(failed: FailedFollowup) -> str:
    return "once" if failed.tries == 1 else f"{failed.tries} times"


def _words(failed: FailedFollowup) -> tuple[str, str]:
    """What was to be done, and how things stand when it isn't."""
    match failed.followup:
        case AbortRemote():
            return (
                "Telling the remote agent that nobody wants its work any more",
                "It may still be at work there.",
            )
        case CallRunEnd():
            return (
                "Calling the run_end hooks of its agent's plugins",
                "They aren't called any more; the run itself has ended as its record says.",
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
                "Whoever waited for it has an error instead.",
            )
        case FollowupKind.REPORT_TO_PARENT:
            return (
                f"Hearing of {child}",
                f"Whoever waited for it has an error instead; GET {path} says what came of it.",
            )
        case FollowupKind.CANCEL:
            return (
                f"Cancelling {child}, for which nobody waits any more",
                f"It may still be there: POST {path}/cancel.",
            )
        case FollowupKind.FORWARD_MESSAGES:
            return (
                f"Passing messages on to {child}",
                f"They stay unread; what it has to know can be sent to it: POST {path}/inputs.",
            )
        case FollowupKind.FORGET:
            return (
                f"Removing {child}, which wasn't to be kept",
                f"It is still there: GET {path} names its thread, which can be deleted.",
            )
        case _:
            assert_never(kind)
