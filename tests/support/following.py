"""Readers of the event log for tests, and functions that write events."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from app.clock import SystemClock
from app.domain.checkpoints import CheckpointSaved
from app.domain.events.run_events import RunFinish
from app.domain.events.step_events import TextDelta
from app.domain.ids import RunId
from app.domain.runs.runs import Done, NewRun, Waiting
from app.domain.tickets.tickets import Ticket
from app.events.fanout.hub import Subscription
from app.events.follow import Follower, StreamScope, follow
from app.events.selection import EventSelection
from app.events.sse_encoding import Frame
from app.storage.checkpoints import single
from app.storage.events import batched_append
from app.storage.postgres.database import Database
from tests.support.emitters import TIMEOUT_SECONDS, Emitters
from tests.support.stored_runs import checkpoint_of, deltas

NOW = SystemClock().now


def scope_of(run: NewRun, run_id: RunId | None = None, *, until_done: bool = False) -> StreamScope:
    return StreamScope(run.tenant, run.thread_id, run_id, until_done)


@asynccontextmanager
async def following(
    database: Database,
    emitters: Emitters,
    scope: StreamScope,
    *,
    after: int = 0,
    heartbeat: float = TIMEOUT_SECONDS,
    subscription: Subscription | None = None,
    selected: EventSelection | None = None,
) -> AsyncIterator["Reader"]:
    follower = follow(
        database.pool,
        emitters.hub,
        scope,
        after=after,
        heartbeat=heartbeat,
        subscription=subscription,
        selected=selected or EventSelection(),
    )
    try:
        async with aclosing(follower.frames()) as frames:
            yield Reader(follower, frames)
    finally:
        follower.close()


class Reader:
    """Reads frames of a follower."""

    def __init__(self, follower: Follower, frames: AsyncIterator[object]) -> None:
        self.follower = follower
        self._frames = frames
        self.received: list[Frame] = []

    async def until(self, count: int) -> list[int]:
        """Waits for `count` frames; returns the numbers of all received frames."""
        async for received in self._frames:
            if isinstance(received, list):
                self.received += received
            if len(self.received) >= count:
                break
        return self.seqs

    async def to_the_end(self) -> list[int]:
        async for received in self._frames:
            assert isinstance(received, list), "the stream stays open"
            self.received += received
        return self.seqs

    async def expect_no_frames(self) -> None:
        """Assert that no frame and no end comes for one heartbeat."""
        assert await anext(self._frames) is None

    @property
    def seqs(self) -> list[int]:
        return [frame.seq for frame in self.received]

    @property
    def whole_frames(self) -> list[bytes]:
        return [frame.whole for frame in self.received]

    @property
    def types(self) -> list[str]:
        return [frame.event_type for frame in self.received]


async def log_unpublished(database: Database, run: NewRun, count: int, attempt: int = 1) -> None:
    """Write events without a notification."""
    flush = batched_append.Flush(run.tenant, run.thread_id, run.id, attempt, deltas(*["x"] * count))
    assert await batched_append.flush(database.pool, [flush], NOW())


async def suspend_run(
    emitters: Emitters, run: NewRun, state: Waiting | Done, *opened: Ticket, attempt: int = 1
) -> None:
    async with emitters.outgoing.transaction() as transaction:
        saved = checkpoint_of(run, state=state, opened=opened, attempt=attempt)
        outcome = await single.save(transaction.connection, saved, at=transaction.now)
        assert isinstance(outcome, CheckpointSaved)
        transaction.emit(
            run.tenant, run.thread_id, run.id, RunFinish({}, "waiting", {"type": "suspended"})
        )


async def emit(emitters: Emitters, run: NewRun, *texts: str) -> None:
    async with emitters.outgoing.transaction() as transaction:
        for text in texts:
            transaction.emit(run.tenant, run.thread_id, run.id, TextDelta(text), 1)
