"""Threads: conversations, one run at a time."""

from dataclasses import dataclass
from datetime import datetime

from app.domain.ids import RunId, ThreadId
from app.domain.json_values import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation. The open run is the one that occupies it."""

    id: ThreadId
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
    def is_occupied(self) -> bool:
        """Whether a new run has to stand in line."""
        return self.open_run_id is not None or self.queue_length > 0


@dataclass(frozen=True, slots=True)
class TableSize:
    """How much of a table is a thread's; `size` is bytes as stored, compressed where they are."""

    table: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class ThreadSize:
    """What a thread takes in every table, and what it would take besides if its deltas weren't merged."""

    tables: tuple[TableSize, ...]
    saved_rows: int
    saved_size: int
