"""Following a thread or a run: what the log has, then what is being said; no gap, no duplicate.

The cursor is a number of the *thread*. What is pushed is believed only as long as it continues the
cursor; anything else means: read the log. So it doesn't matter how hints travel, or whether.
No database connection is held while waiting.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.clock import sleep
from app.domain.errors import BadCursor, Gone
from app.domain.events.command_events import COMMAND_EVENTS
from app.domain.events.run_events import RUN_FINISH
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus
from app.events.fanout.hub import Hub, Subscription
from app.events.sse_encoding import Frame, logged_frame
from app.storage.events import event_log
from app.storage.events.event_log import EventPage
from app.storage.postgres.database import DATABASE_UNAVAILABLE, RawPool
from app.storage.runs import runs

PAGE_SIZE = 500
POLL_INTERVAL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class StreamScope:
    """What is followed: a whole thread, or one run of it."""

    tenant: Tenant
    thread_id: ThreadId
    run_id: RunId | None = None
    until_done: bool = False
    """Stay when a run comes to rest, and end only with its end."""

    def contains(self, frame: Frame) -> bool:
        return self.run_id is None or frame.run_id == self.run_id


Filter: TypeAlias = Callable[[Frame], bool]
FrameBatch: TypeAlias = Sequence[Frame] | None
"""Some frames in order, or None: nothing to show for as long as a heartbeat."""


class Follower:
    """One reader of a scope. Close it when nobody reads on, also when nobody ever began to."""

    def __init__(
        self,
        pool: RawPool,
        scope: StreamScope,
        subscription: Subscription,
        *,
        after: int,
        caught_up: bool,
        heartbeat: float,
        wanted: Filter | None,
    ) -> None:
        self._pool = pool
        self._scope = scope
        self._subscription = subscription
        self._cursor = after
        self._behind = not caught_up
        self._heartbeat = heartbeat
        self._wanted = wanted
        self._at_finish = False
        self._was_over = False
        """The last look at the run has found it so; the log is to be read once more."""
        self._showed_at = asyncio.get_running_loop().time()
        subscription.cursor = after

    async def frames(self) -> AsyncGenerator[FrameBatch]:
        """Everything wanted after the cursor, until the scope has nothing more to say."""
        while True:
            heard = await self._read() if self._behind else await self._listen()
            shown = heard if self._wanted is None else list(filter(self._wanted, heard))
            if shown:
                yield shown
                self._showed_at = asyncio.get_running_loop().time()
            elif self._until_heartbeat() <= 0:
                yield None
                self._showed_at = asyncio.get_running_loop().time()
            self._at_finish = self._ends_with_finish(heard)
            if self._at_finish and not self._behind:
                if self._is_end(heard[-1]) if heard else self._was_over:
                    return
                over = await self._is_over()
                self._at_finish = over is not False
                # What has made it so may have been said since the log was read.
                self._was_over = over is True
                self._behind |= self._was_over

    def close(self) -> None:
        self._subscription.close()

    async def _read(self) -> list[Frame]:
        """What the log has; nothing while the database is away, which no client need notice."""
        try:
            stretch = await event_log.read_after(
                self._pool,
                self._scope.tenant,
                self._scope.thread_id,
                self._cursor,
                run_id=self._scope.run_id,
                limit=PAGE_SIZE,
            )
            gap = await _gap(self._pool, self._scope, stretch, self._cursor)
        except DATABASE_UNAVAILABLE:
            await poll_interval()
            return []
        if gap is not None:
            raise Gone("cursor_expired", gap.reason, oldest_available=gap.oldest_available)
        if stretch.is_full:
            self._move(stretch.events[-1].seq)
        else:
            self._behind = False
            self._move(max(self._cursor, stretch.head))
        return [logged_frame(self._scope.thread_id, event) for event in stretch.events]

    async def _listen(self) -> list[Frame]:
        pushed = await self._subscription.next(self._until_heartbeat())
        if pushed is None:
            return []
        if not pushed:
            self._behind = True
        heard: list[Frame] = []
        for frame in pushed:
            if frame.seq <= self._cursor:
                continue
            if frame.seq != self._cursor + 1:
                self._behind = True
                break
            self._move(frame.seq)
            if self._scope.contains(frame):
                heard.append(frame)
        return heard

    def _until_heartbeat(self) -> float:
        """What others say, or nobody wants, doesn't keep a connection open."""
        silent = asyncio.get_running_loop().time() - self._showed_at
        return max(0.0, self._heartbeat - silent)

    def _move(self, cursor: int) -> None:
        self._cursor = cursor
        self._subscription.cursor = cursor

    def _ends_with_finish(self, heard: Sequence[Frame]) -> bool:
        """Others may speak to a run that rests: what they say doesn't mean that it goes on."""
        for frame in reversed(heard):
            if frame.event_type not in COMMAND_EVENTS:
                return frame.event_type == RUN_FINISH
        return self._at_finish

    def _is_end(self, last: Frame) -> bool:
        return self._scope.run_id is not None and last.ends_its_run

    async def _is_over(self) -> bool | None:
        """A run's stream ends after a `run_finish` that is its last word for now. None: ask again."""
        if self._scope.run_id is None:
            return False
        try:
            standing = await runs.status_of_run(self._pool, self._scope.tenant, self._scope.run_id)
        except DATABASE_UNAVAILABLE:
            self._behind = True
            return None
        if standing is None or standing.status is RunStatus.DONE:
            return True
        return standing.is_idle and not self._scope.until_done


def follow(
    pool: RawPool,
    hub: Hub,
    scope: StreamScope,
    *,
    after: int,
    heartbeat: float,
    subscription: Subscription | None = None,
    wanted: Filter | None = None,
) -> Follower:
    """Follow a scope from a cursor on, and show what is wanted of it.

    Whoever has subscribed before the cursor's event was committed passes that subscription, and the
    log isn't read unless something is missing.
    """
    return Follower(
        pool,
        scope,
        subscription or hub.subscribe(scope.tenant, scope.thread_id),
        after=after,
        caught_up=subscription is not None,
        heartbeat=heartbeat,
        wanted=wanted,
    )


@dataclass(frozen=True, slots=True)
class _Gap:
    """What is missing after a cursor, and the oldest event that a reader can still get whole."""

    reason: str
    oldest_available: int


async def _gap(pool: RawPool, scope: StreamScope, stretch: EventPage, after: int) -> _Gap | None:
    """Whether somebody who has read up to the cursor would miss something, or get it twice."""
    if stretch.events and (stretch.events[0].from_seq or after + 1) <= after:
        return _Gap(f"Event {after} has been merged with its neighbours.", stretch.events[0].seq)
    if after >= stretch.pruned_to:
        return None
    if scope.run_id is None:
        oldest = stretch.pruned_to + 1
        return _Gap(f"Events up to {stretch.pruned_to} were old and have been removed.", oldest)
    if not stretch.events or await event_log.has_its_beginning(
        pool, scope.tenant, scope.thread_id, scope.run_id, stretch.events[0].seq
    ):
        return None
    return _Gap("The events of this run were old and have been removed.", stretch.head + 1)


async def check_cursor(pool: RawPool, scope: StreamScope, after: int, snapshot: str) -> bool:
    """Whether anything stands after the cursor; a cursor that can't be continued is refused."""
    stretch = await event_log.read_after(
        pool, scope.tenant, scope.thread_id, after, run_id=scope.run_id, limit=1
    )
    if after > stretch.head:
        gap: _Gap | None = _Gap(
            f"Event {after} doesn't exist; the newest is {stretch.head}.", stretch.pruned_to + 1
        )
    else:
        gap = await _gap(pool, scope, stretch, after)
    if gap is not None:
        raise Gone(
            "cursor_expired",
            f"{gap.reason} Read the snapshot and continue from last_event_id.",
            oldest_available=gap.oldest_available,
            snapshot=snapshot,
            last_event_id=stretch.head,
        )
    return bool(stretch.events)


async def first_cursor(pool: RawPool, scope: StreamScope) -> int:
    """The number before the first event that a thread still has."""
    return (await event_log.read_after(pool, scope.tenant, scope.thread_id, 0, limit=1)).pruned_to


async def poll_interval() -> None:
    """Let an outage pass; not all streams come back at the same instant."""
    await sleep(POLL_INTERVAL_SECONDS * random.uniform(0.5, 1.5))


def parse_cursor(text: str) -> int:
    """A cursor is a number of the thread, 0 for the very beginning."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadCursor(
            "cursor_invalid", "A cursor is the id of an event: a whole number, 0 or more."
        )
    return int(text)


async def read_page(
    pool: RawPool, scope: StreamScope, after: int, limit: int
) -> tuple[list[Frame], bool]:
    """The next events as they are now, and whether there are more."""
    stretch = await event_log.read_after(
        pool, scope.tenant, scope.thread_id, after, run_id=scope.run_id, limit=limit
    )
    frames = [logged_frame(scope.thread_id, event) for event in stretch.events]
    return frames, stretch.is_full


async def last_cursor(pool: RawPool, scope: StreamScope) -> int:
    """The number of the thread's last event."""
    return (await event_log.read_after(pool, scope.tenant, scope.thread_id, 0, limit=1)).head
