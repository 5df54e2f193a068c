"""Threads: conversations, one run at a time."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from app.domain.ids import RunId, ThreadId
from app.domain.json_values import JsonObject
from app.domain.threads.messages import Role


class Thread(Struct, frozen=True, kw_only=True):
    """A conversation. `open_run_id` is the run that occupies it."""

    id: ThreadId
    key: str | None
    """The client's own name of the thread. Its id follows from it. None: it was created by its id."""
    title: str | None
    resource_id: str | None
    parent_thread_id: ThreadId | None
    metadata: JsonObject
    next_message_seq: int
    open_run_id: RunId | None
    latest_run_id: RunId | None
    queue_length: int
    created_at: datetime
    updated_at: datetime

    @property
    def message_count(self) -> int:
        return self.next_message_seq - 1

    @property
    def is_occupied(self) -> bool:
        """Whether a new run is queued."""
        return self.open_run_id is not None or self.queue_length > 0


class MessagePreview(Struct, frozen=True):
    """A message of a thread, shortened."""

    role: Role
    text: str
    created_at: datetime


class ListedThread(Struct, frozen=True):
    """A thread, when its last run started if the list is sorted by it, and the messages that were asked for."""

    thread: Thread
    last_run_at: datetime | None = None
    last_message: MessagePreview | None = None
    first_message: MessagePreview | None = None
    """The first one of a user."""


class ThreadSort(StrEnum):
    """What a list of threads is sorted by."""

    CREATED = "created_at"
    LAST_RUN = "last_run_at"
    """When the last run of the thread was created."""


class ThreadFilter(Struct, frozen=True, kw_only=True):
    """The filter of a thread list."""

    key: str | None = None
    title: str | None = None
    """The beginnings of words of the title."""
    resource_id: str | None = None
    parent_thread_id: ThreadId | None = None
    metadata: JsonObject = {}
