"""Inputs: messages that wait to enter a thread's log."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.domain.ids import InputId, RunId, ThreadId
from app.domain.messages import Message


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
    """A message for a run that can't take it yet; `position` orders the inputs of a thread."""

    id: InputId
    thread_id: ThreadId
    run_id: RunId
    position: int
    message: Message
    status: InputStatus
    revision: int
