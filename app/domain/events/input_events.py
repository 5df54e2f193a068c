"""Events of an input: a message that waits to enter the thread's log."""

from typing import ClassVar

from msgspec import Struct


class InputQueued(Struct, frozen=True):
    """A message was sent to the run and waits to enter the log."""

    event_type: ClassVar[str] = "input_queued"
    input_id: str
    message_id: str


class InputChanged(Struct, frozen=True):
    """The input has a new message, under the same ids."""

    event_type: ClassVar[str] = "input_changed"
    input_id: str
    message_id: str
    revision: int


class InputRetracted(Struct, frozen=True):
    """A client withdrew the input. Inputs that a run leaves unread at its end emit no event each."""

    event_type: ClassVar[str] = "input_retracted"
    input_id: str
    message_id: str


class InputDelivered(Struct, frozen=True):
    """The input is in the log now, and its run reads it."""

    event_type: ClassVar[str] = "input_delivered"
    input_id: str
    message_id: str
    message_seq: int
