"""Follow-ups: jobs that a commit enqueues, about another run or for a remote server.

A follow-up may run twice or late, so it checks the current state first. A change of another run is made in a
transaction of that run's thread. A failing follow-up is retried with growing pauses, and given up after
`MAX_TRIES`.
"""

from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from app.domain.ids import RunId, Tenant

MAX_TRIES = 10
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
"""Pauses between two tries. All of them together outlast a deployment, because newer processes may
succeed where older ones fail."""
FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.25, 10.0
# More would overflow, and the longest pauses come much earlier.
_MAX_DOUBLINGS = 20
"""Pauses between two checks of a follow-up that waits for a condition."""


class FollowupKind(StrEnum):
    START = "start_child"
    REPORT_TO_PARENT = "report_to_parent"
    SHOW_TICKETS = "show_tickets"
    CANCEL = "cancel_child"
    FORWARD_MESSAGES = "forward_messages"
    DELETE = "delete_child"


ABORT_REMOTE = "abort_remote"
CALL_RUN_END = "call_run_end"


class ChildFollowup(Struct, frozen=True, kw_only=True):
    kind: FollowupKind
    tenant: Tenant
    parent_run_id: RunId
    child_run_id: RunId

    @property
    def name(self) -> str:
        return self.kind.value

    @property
    def about(self) -> RunId:
        return self.child_run_id

    @property
    def on_behalf_of(self) -> RunId:
        return self.parent_run_id


class AbortRemote(Struct, frozen=True, kw_only=True):
    """Abort a remote agent's run at its server, because the run has ended here."""

    tenant: Tenant
    run_id: RunId

    @property
    def name(self) -> str:
        return ABORT_REMOTE

    @property
    def about(self) -> RunId:
        return self.run_id

    @property
    def on_behalf_of(self) -> RunId:
        return self.run_id


class CallRunEnd(Struct, frozen=True, kw_only=True):
    """Call the `run_end` hooks of a run that ended without its agent's code."""

    tenant: Tenant
    run_id: RunId

    @property
    def name(self) -> str:
        return CALL_RUN_END

    @property
    def about(self) -> RunId:
        return self.run_id

    @property
    def on_behalf_of(self) -> RunId:
        return self.run_id


Followup: TypeAlias = ChildFollowup | AbortRemote | CallRunEnd


class JobInfo(Struct, frozen=True, kw_only=True):
    """How often and how late a follow-up is delivered."""

    polls: int = 0
    """The number of earlier checks."""
    is_late: bool = False
    """Whether it is long overdue, so an earlier worker may have crashed on it."""


class RetryAfter(Struct, frozen=True):
    """The follow-up isn't done; check again after these seconds."""

    seconds: float


def retry_delay(tries: int) -> float:
    """Seconds between a failed try and the next one."""
    return _exponential(FIRST_RETRY_SECONDS, tries - 1, MAX_RETRY_SECONDS)


def poll_delay(polls: int) -> float:
    """Seconds between two checks of a condition."""
    return _exponential(FIRST_POLL_SECONDS, polls, MAX_POLL_SECONDS)


def _exponential(first: float, times: int, maximum: float) -> float:
    return min(first * 2.0 ** min(times, _MAX_DOUBLINGS), maximum)


class FailedFollowup(Struct, frozen=True, kw_only=True):
    """A follow-up that has failed, and when it is tried next."""

    followup: Followup
    tries: int
    next_at: datetime
    given_up_at: datetime | None
