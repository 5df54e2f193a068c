"""Inputs: messages that wait to enter a thread's log."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from app.domain.ids import InputId, RunId, ThreadId
from app.domain.threads.messages import Message


class InputStatus(StrEnum):
    PENDING = "pending"
    CONSUMED = "consumed"
    RETRACTED = "retracted"


INPUT_TRANSITIONS: Mapping[InputStatus, frozenset[InputStatus]] = {
    InputStatus.PENDING: frozenset(InputStatus),
    InputStatus.CONSUMED: frozenset({InputStatus.CONSUMED}),
    InputStatus.RETRACTED: frozenset({InputStatus.RETRACTED}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A message that a run hasn't taken yet, or has; `position` orders what one run hasn't."""

    id: InputId
    thread_id: ThreadId
    run_id: RunId
    position: int
    message: Message
    status: InputStatus
    revision: int
    created_at: datetime
    consumed_seq: int | None
    """Its place in the thread's log, once it has one."""
    run_order: int = 0
    """While it waits: `events_from` of its run. Runs of a thread read in this order."""
