"""The transaction in which commands emit events: numbered just before the commit, published after it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Protocol

from app.clock import Clock
from app.domain.checkpoints import PendingEvent
from app.domain.events.agent_events import AgentEvent
from app.domain.ids import RunId, Tenant, ThreadId
from app.events.fanout.hub import Hub
from app.events.sse_encoding import EventBatch
from app.storage.events import event_log
from app.storage.events.event_log import EventEntry, entry
from app.storage.postgres.database import Connection, Database


class Relay(Protocol):
    """Sends hints to other processes."""

    def announce(self, batch: EventBatch) -> None: ...


class Publisher:
    """Publishes committed events, here and to other processes. Every commit of events must be published,
    or followers see a gap and read the log."""

    def __init__(self, hub: Hub, relay: Relay) -> None:
        self._hub = hub
        self._relay = relay

    def publish(self, batch: EventBatch) -> None:
        self._hub.publish(batch)
        self._relay.announce(batch)


class Transaction:
    """A command's transaction. All its events belong to one thread."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self.connection = connection
        self.now = now
        self.pending_events: list[tuple[Tenant, ThreadId, RunId, EventEntry]] = []

    def emit(
        self,
        tenant: Tenant,
        thread_id: ThreadId,
        run_id: RunId,
        event: AgentEvent,
        step: int | None = None,
    ) -> None:
        self.pending_events.append((tenant, thread_id, run_id, entry(PendingEvent(event, step))))

    def emit_encoded(
        self, tenant: Tenant, thread_id: ThreadId, run_id: RunId, entries: Sequence[EventEntry]
    ) -> None:
        self.pending_events.extend((tenant, thread_id, run_id, one) for one in entries)


class EventTransactions:
    def __init__(self, database: Database, publisher: Publisher, clock: Clock) -> None:
        self._database = database
        self._publisher = publisher
        self._clock = clock

    def now(self) -> datetime:
        """The current time of the clock that stamps the transactions."""
        return self._clock.now()

    @asynccontextmanager
    async def transaction(
        self, now: datetime | None = None, *, by_key: bool = False
    ) -> AsyncIterator[Transaction]:
        """Commit the block's writes together with its events, then publish these.

        `by_key` as in `Database.transaction`.
        """
        now = now or self._clock.now()
        async with self._database.transaction(by_key=by_key) as connection:
            transaction = Transaction(connection, now)
            yield transaction
            batches = await _append_events(transaction, now)
        for batch in batches:
            self._publisher.publish(batch)


async def _append_events(transaction: Transaction, now: datetime) -> list[EventBatch]:
    """Lock the thread's event head, as the last lock, and write the events with its numbers."""
    pending = transaction.pending_events
    if not pending:
        return []
    tenant, thread_id, _, _ = pending[0]
    if any((other[0], other[1]) != (tenant, thread_id) for other in pending):
        raise RuntimeError("a transaction emits events of one thread only")
    numbered = [(run_id, one) for _, _, run_id, one in pending]
    seq = await event_log.append_events(transaction.connection, tenant, thread_id, numbered, now)
    batches: list[EventBatch] = []
    while pending:
        run_id = pending[0][2]
        together = 0
        while together < len(pending) and pending[together][2] == run_id:
            together += 1
        entries = [one for _, _, _, one in pending[:together]]
        batches.append(EventBatch(tenant, thread_id, run_id, seq, entries, now))
        seq += together
        pending = pending[together:]
    return batches
