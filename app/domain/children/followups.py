"""Errands: what a commit has to have done afterwards, about another run or at somebody else's server.

Each may be done twice, or too late: whoever does it looks at how things stand by then. What concerns
another run is done in a transaction of that run's thread. One that fails is tried again after pauses that
grow, and in the end it is given up.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from app.domain.ids import RunId, Tenant

MAX_TRIES = 10
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries. All of them together outlast a deployment, whose newer processes may be
able to do what the older ones can't."""
FIRST_LOOK, LATEST_LOOK = 0.25, 10.0
"""Seconds between two looks at whether an errand can be done by now."""


class FollowupKind(StrEnum):
    START = "start_child"
    REPORT_TO_PARENT = "tell_parent"
    CANCEL = "cancel_child"
    FORWARD_MESSAGES = "pass_on_messages"
    FORGET = "forget_child"


ABORT_REMOTE = "abort_remote"
CALL_RUN_END = "call_run_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildFollowup:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortRemote:
    """A run has ended whose agent lives elsewhere and hasn't been told."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRunEnd:
    """A run has ended without its agent's code, and its `run_end` hooks haven't been called."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """How an errand comes to whoever is to do it now."""

    polls: int = 0
    """So often somebody has looked at it before."""
    is_late: bool = False
    """It ought to have been done long ago: somebody may have died over it."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """It isn't done, and is to be tried again after so many seconds."""

    seconds: float


def retry_delay(tries: int) -> float:
    """Between a failed try and the next one."""
    return _grown(FIRST_PAUSE, tries - 1, LONGEST_PAUSE)


def poll_delay(looks: int) -> float:
    """Between two looks at something that has to happen first."""
    return _grown(FIRST_LOOK, looks, LATEST_LOOK)


def _grown(first: float, times: int, longest: float) -> float:
    return min(first * 2.0 ** min(times, 20), longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFollowup:
    """An errand that has failed so far."""

    followup: Followup
    tries: int
    next_at: datetime
    given_up_at: datetime | None
