"""Errands: what a commit has to have done afterwards, about another run or at somebody else's server.

Each may be done twice, or too late: whoever does it looks at how things stand by then. What concerns
another run is done in a transaction of that run's thread.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from app.domain.ids import RunId, Tenant


class ChildErrand(StrEnum):
    START = "start_child"
    TELL_PARENT = "tell_parent"
    CANCEL = "cancel_child"
    PASS_ON = "pass_on_messages"
    FORGET = "forget_child"


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutChild:
    kind: ChildErrand
    tenant: Tenant
    parent_run_id: RunId
    child_run_id: RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortRemote:
    """A run has ended whose agent lives elsewhere and hasn't been told."""

    tenant: Tenant
    run_id: RunId


Errand: TypeAlias = AboutChild | AbortRemote
ABORT_REMOTE = "abort_remote"
