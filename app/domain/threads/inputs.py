"""Inputs: messages that wait to enter a thread's log."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from app.domain.ids import InputId, RunId, ThreadId
from app.domain.threads.messages import Message


class InputStatus(StrEnum):
    PENDING = "pending"
    CONSUMED = "consumed"
    RETRACTED = "retracted"


class Input(Struct, frozen=True, kw_only=True):
    """A message for a run, pending or already read; `position` orders the pending inputs of one run."""

    id: InputId
    thread_id: ThreadId
    run_id: RunId
    position: int
    message: Message
    status: InputStatus
    revision: int
    created_at: datetime
    consumed_seq: int | None
    """Its position in the thread's log; None while it is pending."""
    retracted_by: str | None
    """The subject that retracted it. None also for a retracted one: its run ended without reading it."""
    run_order: int
    """`events_from` of its run while it is pending: the runs of a thread read in this order."""
