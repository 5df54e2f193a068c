"""Readers of the log in tests, and those who write what they read."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from app.clock import SystemClock
from app.domain.checkpoints import CheckpointSaved
from app.domain.events.run_events import RunFinish, TextDelta
from app.domain.ids import RunId
from app.domain.runs.runs import Done, NewRun, Waiting
from app.domain.tickets.tickets import Ticket
from app.events.fanout.hub import Subscription
from app.events.follow import Follower, StreamScope, follow
from app.events.sse_encoding import Frame
from app.storage.checkpoints import single
from app.storage.events import batched_append
from app.storage.postgres.database import Database
from tests.support.stored_runs import checkpoint_of, deltas
from tests.support.voices import PATIENCE, Voices

NOW = SystemClock().now


def scope_of(run: NewRun, run_id: RunId | None = None, *, until_done: bool = False) -> StreamScope:
    return StreamScope(run.tenant, run.thread_id, run_id, until_done)


@asynccontextmanager
async def following(
    database: Database,
    voices: Voices,
    scope: StreamScope,
    *,
    after: int = 0,
    heartbeat: float = PATIENCE,
    subscription: Subscription | None = None,
) -> AsyncIterator["Reader"]:
    follower = follow(
        database.pool,
        voices.hub,
        scope,
        after=after,
        heartbeat=heartbeat,
        subscription=subscription,
    )
    try:
        async with aclosing(follower.frames()) as frames:
            yield Reader(follower, frames)
    finally:
        follower.close()


class Reader:
    """Takes what a follower shows, as much of it as asked for."""

    def __init__(self, follower: Follower, frames: AsyncIterator[object]) -> None:
        self.follower = follower
        self._frames = frames
        self.heard: list[Frame] = []

    async def until(self, count: int) -> list[int]:
        """The numbers of all that was heard, once there are so many."""
        async for heard in self._frames:
            if isinstance(heard, list):
                self.heard += heard
            if len(self.heard) >= count:
                break
        return self.seqs

    async def to_the_end(self) -> list[int]:
        async for heard in self._frames:
            assert isinstance(heard, list), "the stream stays open"
            self.heard += heard
        return self.seqs

    async def silence(self) -> None:
        """Nothing more for a heartbeat, and no end either."""
        assert await anext(self._frames) is None

    @property
    def seqs(self) -> list[int]:
        return [frame.seq for frame in self.heard]

    @property
    def types(self) -> list[str]:
        return [frame.event_type for frame in self.heard]


async def log_unheard(database: Database, run: NewRun, count: int, attempt: int = 1) -> None:
    """Write events that nobody is told of."""
    flush = batched_append.Flush(run.tenant, run.thread_id, run.id, attempt, deltas(*["x"] * count))
    assert await batched_append.flush(database.pool, [flush], NOW())


async def come_to_rest(
    voices: Voices, run: NewRun, state: Waiting | Done, *opened: Ticket, attempt: int = 1
) -> None:
    async with voices.outgoing.transaction() as transaction:
        saved = checkpoint_of(run, state=state, opened=opened, attempt=attempt)
        outcome = await single.save(transaction.connection, saved, at=transaction.now)
        assert outcome == CheckpointSaved()
        transaction.emit(run.tenant, run.thread_id, run.id, RunFinish({}, {"type": "suspended"}))


async def say(voices: Voices, run: NewRun, *texts: str) -> None:
    async with voices.outgoing.transaction() as transaction:
        for text in texts:
            transaction.emit(run.tenant, run.thread_id, run.id, TextDelta(text), 1)
