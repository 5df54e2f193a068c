"""Decoded messages of recent threads, bounded in bytes, so that a turn reads only what is new.

The log of a thread is append-only. What was read stays right while the thread is the same, has no further
rollback, and still has the last message that was read: a server that took over may have lost commits. The
statement that reads the new messages tells all three.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from app import telemetry
from app.domain.claims.stored_progress import HistoryMark, StoredProgress
from app.domain.ids import Tenant, ThreadId
from app.domain.runs.runs import RunRecord
from app.domain.threads.messages import LoggedMessage
from app.storage.checkpoints import loading
from app.storage.postgres.database import RawPool

DEFAULT_BYTES = 64_000_000
Key: TypeAlias = tuple[Tenant, ThreadId]


class KnownHistory(Struct, frozen=True):
    """The messages of a thread that a process has read before, at least one, with their bytes."""

    log: Sequence[LoggedMessage]
    mark: HistoryMark
    size: int

    @property
    def last(self) -> LoggedMessage:
        return self.log[-1]

    def is_continued_by(self, read: StoredProgress) -> bool:
        """Whether what was read from the last known message on continues what is known."""
        return (
            self.mark == read.mark
            and len(read.log) > 0
            and (self.last.seq, self.last.message.id) == (read.log[0].seq, read.log[0].message.id)
        )


class HistoryCache:
    """The histories of the threads that were used last."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._known: OrderedDict[Key, KnownHistory] = OrderedDict()
        self.size = 0

    def get(self, key: Key) -> KnownHistory | None:
        return self._known.get(key)

    async def load(
        self, pool: RawPool, run: RunRecord, *, with_progress: bool = True
    ) -> tuple[list[LoggedMessage], StoredProgress]:
        """The log of the run's thread, and the run's progress if it is wanted. Usually one statement."""
        key = (run.tenant, run.thread_id)
        known = self.get(key)
        if known is not None:
            read = await loading.load(
                pool, run, from_seq=known.last.seq, with_progress=with_progress
            )
            if (log := self._extended(key, known, read)) is not None:
                return log, read
        read = await loading.load(pool, run, with_progress=with_progress)
        return self._whole(key, read), read

    def first_to_read(self, key: Key) -> int:
        """The number of the message from which on a thread must be read: the last one that is known, or 1."""
        known = self.get(key)
        return 1 if known is None else known.last.seq

    def log_with(self, run: RunRecord, read: StoredProgress) -> list[LoggedMessage] | None:
        """The log of a run's thread, from what is known and what the run's claim has read. None if the log has to
        be loaded."""
        key = (run.tenant, run.thread_id)
        if read.from_seq == 1:
            return self._whole(key, read)
        known = self.get(key)
        return None if known is None else self._extended(key, known, read)

    def _whole(self, key: Key, read: StoredProgress) -> list[LoggedMessage]:
        telemetry.histories_read.labels("all").inc()
        self._put(key, KnownHistory(tuple(read.log), read.mark, sum(read.log_bytes)))
        return list(read.log)

    def _extended(
        self, key: Key, known: KnownHistory, read: StoredProgress
    ) -> list[LoggedMessage] | None:
        """The whole log, from what is known and what was read from its last message on. None if what is known
        is void."""
        if not known.is_continued_by(read):
            telemetry.histories_read.labels("void").inc()
            self._remove(key)
            return None
        telemetry.histories_read.labels("new").inc()
        log = [*known.log, *read.log[1:]]
        size = known.size + sum(read.log_bytes[1:])
        self._put(key, KnownHistory(tuple(log), read.mark, size))
        return log

    def _put(self, key: Key, history: KnownHistory) -> None:
        self._remove(key)
        if history.log and history.size <= self._max_bytes:
            self._known[key] = history
            self.size += history.size
        while self.size > self._max_bytes:
            self._remove(next(iter(self._known)))
        telemetry.history_cache_bytes.set(self.size)

    def _remove(self, key: Key) -> None:
        if (removed := self._known.pop(key, None)) is not None:
            self.size -= removed.size
