"""Events of an input: a message that waits to enter the thread's log."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class InputQueued:
    event_type: ClassVar[str] = "input_queued"
    input_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class InputChanged:
    """The input has a new message, under the same ids."""

    event_type: ClassVar[str] = "input_changed"
    input_id: str
    message_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class InputRetracted:
    """A client withdrew the input. Inputs that a run leaves unread at its end emit no event each."""

    event_type: ClassVar[str] = "input_retracted"
    input_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class InputDelivered:
    """The input is in the log now, and its run reads it."""

    event_type: ClassVar[str] = "input_delivered"
    input_id: str
    message_id: str
    message_seq: int
