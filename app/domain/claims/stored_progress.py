"""What earlier activations of a run have stored, and the log of its thread."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from app.domain.threads.messages import LoggedMessage
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState


class HistoryMark(Struct, frozen=True):
    """Changes when messages that were read before no longer are the thread's log: after a rollback, or in a
    new thread with the same id."""

    thread_created_at: datetime | None
    rollbacks: int


class StoredProgress(Struct, frozen=True):
    """What a worker reads about a run that it has claimed."""

    from_seq: int
    """The number of the message from which on the log was read."""
    log: Sequence[LoggedMessage]
    log_bytes: Sequence[int]
    mark: HistoryMark
    calls: Sequence[tuple[CallState, datetime | None]]
    """The calls of the open step in order, each with the time at which it started."""
    is_open: bool
    """The log of events has a `run_start` without its `run_finish`."""
    begun_step: int
    """The last step that was started; 0 if none was."""
    tickets: Sequence[Ticket] = ()
    """The run's tickets that are open, or decided and not applied, oldest first."""
