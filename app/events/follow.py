"""Follow a thread or a run: first the events in the log, then those that are pushed; no gap, no duplicate.

The cursor is an event number of the *thread*. A pushed event is used only if its number continues the
cursor; otherwise the log is read. So lost hints cost time, but no events. No database connection is held
while waiting.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from typing import TypeAlias

from msgspec import Struct

from app.clock import sleep
from app.domain.errors import BadCursor, Gone
from app.domain.events.agent_events import COMMAND_EVENTS
from app.domain.events.run_events import RUN_FINISH, PauseRequested
from app.domain.events.ticket_events import TicketOpened
from app.domain.events.tool_call_events import ActivityDelta, ActivitySnapshot
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus
from app.events.fanout.hub import Hub, Subscription
from app.events.selection import EventSelection
from app.events.sse_encoding import Frame, logged_frame
from app.storage.events import event_log
from app.storage.events.event_log import EventPage
from app.storage.postgres.database import DATABASE_UNAVAILABLE, RawPool
from app.storage.runs import runs

PAGE_SIZE = 500
POLL_INTERVAL_SECONDS = 0.5
_MAY_END = frozenset({RUN_FINISH, TicketOpened.event_type, PauseRequested.event_type})
"""Events after which a waiting run may need a decision."""
_ALL_EVENTS = EventSelection()
_AT_ANY_MOMENT = COMMAND_EVENTS | {ActivitySnapshot.event_type, ActivityDelta.event_type}


class StreamScope(Struct, frozen=True):
    """What a reader follows: a whole thread, or one run of it."""

    tenant: Tenant
    thread_id: ThreadId
    run_id: RunId | None = None
    until_done: bool = False
    """Don't end the stream when the run needs a decision, only when it is done."""

    def contains(self, frame: Frame) -> bool:
        return self.run_id is None or frame.run_id == self.run_id


FrameBatch: TypeAlias = Sequence[Frame] | None
"""Some frames in order, or None: there were none for one heartbeat interval."""


class Follower:
    """One reader of a scope. Close it when done, also if it was never read."""

    def __init__(
        self,
        pool: RawPool,
        scope: StreamScope,
        subscription: Subscription,
        *,
        after: int,
        caught_up: bool,
        heartbeat: float,
        selected: EventSelection,
    ) -> None:
        self._pool = pool
        self._scope = scope
        self._subscription = subscription
        self._cursor = after
        self._must_read_log = not caught_up
        self._heartbeat = heartbeat
        self._selected = selected
        self._may_end = False
        """Set by an event after which the run may need a decision. The run's row is read then."""
        self._was_finished = False
        """Set if the run's row shows that the stream ends. The log is then read once more."""
        self._last_event = 0
        """The thread's last event at the moment at which the run's row was read."""
        self._now = asyncio.get_running_loop().time
        self._heartbeat_at = self._now() + heartbeat
        """When a heartbeat is due. Frames that aren't sent don't delay it."""
        self._first_page: EventPage | None = None
        self._shown: Sequence[Frame] = ()
        """The selected ones of the frames that were received last."""
        self.has_ended = False
        """The frames that were yielded last are the stream's last ones."""
        subscription.cursor = after

    async def read_first_page(self, snapshot: str) -> bool:
        """Read the first page ahead, to refuse a cursor that can't be continued before the stream begins.

        Returns whether it has events.
        """
        page = await self._page()
        await _require_continuable(self._pool, self._scope, page, self._cursor, snapshot)
        self._first_page = page
        return bool(page.events)

    @property
    def is_ready(self) -> bool:
        if not self._must_read_log:
            frame = self._subscription.first
            return (
                frame is not None
                and frame.seq == self._cursor + 1
                and self._scope.contains(frame)
                and self._selected.passes(frame.event_type)
            )
        page = self._first_page
        if page is None or self._cursor < page.pruned_to:
            # Below `pruned_to`, one more read has to find out whether the log has a gap.
            return False
        return any(self._selected.passes(event.event_type) for event in page.events)

    async def frames(self) -> AsyncGenerator[FrameBatch]:
        """The selected frames after the cursor, until the scope's last event."""
        while True:
            await self._receive()
            if self._shown:
                yield self._take_shown()
                self._heartbeat_at = self._now() + self._heartbeat
            elif self._heartbeat_at <= self._now():
                yield None
                self._heartbeat_at = self._now() + self._heartbeat
            if self.has_ended:
                return
            if self._may_end and not self._must_read_log:
                finished = await self._is_finished()
                if finished is True and self._last_event == self._cursor:
                    return
                self._may_end = finished is not False
                # Its last events may have been committed after the log was read.
                self._was_finished = finished is True
                self._must_read_log |= self._was_finished

    async def _receive(self) -> None:
        """Read the log or wait for pushed events, once."""
        received = await self._read() if self._must_read_log else await self._listen()
        self._shown = self._selected.of(received)
        self._may_end = self._may_end_after(received)
        self.has_ended = self._ends_with(received)

    def _take_shown(self) -> Sequence[Frame]:
        """Return the selected frames and drop them, because a slow client may take long to read them."""
        shown, self._shown = self._shown, ()
        return shown

    def close(self) -> None:
        self._subscription.close()

    async def _read(self) -> list[Frame]:
        """Read a page of the log. In an outage it is empty: the stream stays open."""
        try:
            page, self._first_page = self._first_page, None
            if page is None:
                page = await self._page()
            gap = await _gap(self._pool, self._scope, page, self._cursor)
        except DATABASE_UNAVAILABLE:
            await poll_interval()
            return []
        if gap is not None:
            raise Gone("cursor_expired", gap.reason, oldest_available=gap.oldest_available)
        if page.is_full:
            self._advance_to(page.events[-1].seq)
        else:
            self._must_read_log = False
            self._advance_to(max(self._cursor, page.head))
        return [logged_frame(self._scope.thread_id, event) for event in page.events]

    async def _page(self) -> EventPage:
        return await event_log.read_after(
            self._pool,
            self._scope.tenant,
            self._scope.thread_id,
            self._cursor,
            run_id=self._scope.run_id,
            limit=PAGE_SIZE,
        )

    async def _listen(self) -> list[Frame]:
        pushed = await self._subscription.next(self._heartbeat_at - self._now())
        if pushed is None:
            return []
        if not pushed:
            self._must_read_log = True
        received: list[Frame] = []
        for frame in pushed:
            if frame.seq <= self._cursor:
                continue
            if frame.seq != self._cursor + 1:
                self._must_read_log = True
                break
            self._advance_to(frame.seq)
            if self._scope.contains(frame):
                received.append(frame)
        return received

    def _advance_to(self, cursor: int) -> None:
        self._cursor = cursor
        self._subscription.cursor = cursor

    def _may_end_after(self, received: Sequence[Frame]) -> bool:
        """Whether the stream may end after these events.

        Other events of commands and the activities of tasks may come at any moment: they don't mean that a
        suspended run was resumed.
        """
        for frame in reversed(received):
            if frame.event_type in _MAY_END:
                return True
            if frame.event_type not in _AT_ANY_MOMENT:
                return False
        return self._may_end

    def _ends_with(self, received: Sequence[Frame]) -> bool:
        """Whether the stream ends after these events, without a look at the run's row."""
        if not self._may_end or self._must_read_log:
            return False
        if not received:
            return self._was_finished
        return self._scope.run_id is not None and received[-1].ends_its_run

    async def _is_finished(self) -> bool | None:
        """Whether the stream ends: the run is done, or needs a decision. None during an outage."""
        if self._scope.run_id is None:
            return False
        try:
            found = await runs.status_of_run(self._pool, self._scope.tenant, self._scope.run_id)
        except DATABASE_UNAVAILABLE:
            self._must_read_log = True
            return None
        self._last_event = 0 if found is None else found.last_event
        if found is None or found.status is RunStatus.DONE:
            return True
        return found.needs_decision and not self._scope.until_done


def follow(
    pool: RawPool,
    hub: Hub,
    scope: StreamScope,
    *,
    after: int,
    heartbeat: float,
    subscription: Subscription | None = None,
    selected: EventSelection = _ALL_EVENTS,
) -> Follower:
    """Follow a scope from a cursor on, and show the selected ones of its events.

    With a `subscription` that was opened before the cursor's event was committed, the log is read only if
    events are missing.
    """
    return Follower(
        pool,
        scope,
        subscription or hub.subscribe(scope.tenant, scope.thread_id),
        after=after,
        caught_up=subscription is not None,
        heartbeat=heartbeat,
        selected=selected,
    )


class _Gap(Struct, frozen=True):
    """Why the log can't continue from a cursor, and the oldest event that a reader can still get."""

    reason: str
    oldest_available: int


async def _gap(pool: RawPool, scope: StreamScope, page: EventPage, after: int) -> _Gap | None:
    """The gap, if a reader with this cursor would miss an event or get one twice."""
    if page.events and (page.events[0].from_seq or after + 1) <= after:
        return _Gap(f"Event {after} has been merged with its neighbours.", page.events[0].seq)
    if after >= page.pruned_to:
        return None
    if scope.run_id is None:
        oldest = page.pruned_to + 1
        return _Gap(f"Events up to {page.pruned_to} were old and have been removed.", oldest)
    if not page.events or await event_log.has_run_created(
        pool, scope.tenant, scope.thread_id, scope.run_id, page.events[0].seq
    ):
        return None
    return _Gap("The events of this run were old and have been removed.", page.head + 1)


async def check_cursor(pool: RawPool, scope: StreamScope, after: int, snapshot: str) -> bool:
    """Whether the log has events after the cursor; refuses a cursor that can't be continued."""
    page = await event_log.read_after(
        pool, scope.tenant, scope.thread_id, after, run_id=scope.run_id, limit=1
    )
    await _require_continuable(pool, scope, page, after, snapshot)
    return bool(page.events)


async def _require_continuable(
    pool: RawPool, scope: StreamScope, page: EventPage, after: int, snapshot: str
) -> None:
    if after > page.head:
        gap: _Gap | None = _Gap(
            f"Event {after} doesn't exist; the newest is {page.head}.", page.pruned_to + 1
        )
    else:
        gap = await _gap(pool, scope, page, after)
    if gap is not None:
        raise Gone(
            "cursor_expired",
            f"{gap.reason} Read the snapshot and continue from last_event_id.",
            oldest_available=gap.oldest_available,
            snapshot=snapshot,
            last_event_id=page.head,
        )


async def first_cursor(pool: RawPool, scope: StreamScope) -> int:
    """The number before the first event that a thread still has."""
    return (await event_log.read_after(pool, scope.tenant, scope.thread_id, 0, limit=1)).pruned_to


async def poll_interval() -> None:
    """Wait during an outage, with jitter: streams must not all retry at the same instant."""
    await sleep(POLL_INTERVAL_SECONDS * random.uniform(0.5, 1.5))


def parse_cursor(text: str) -> int:
    """Parse a cursor: an event number of the thread, 0 for the beginning."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadCursor(
            "cursor_invalid", "A cursor is the id of an event: a whole number, 0 or more."
        )
    return int(text)


async def read_page(
    pool: RawPool,
    scope: StreamScope,
    after: int,
    limit: int,
    selected: EventSelection = _ALL_EVENTS,
) -> tuple[Sequence[Frame], int, bool]:
    """The next selected events, the cursor after them, and whether there are more."""
    page = await event_log.read_after(
        pool,
        scope.tenant,
        scope.thread_id,
        after,
        run_id=scope.run_id,
        limit=limit,
        only=selected.only,
        without=selected.without,
    )
    frames = [logged_frame(scope.thread_id, event) for event in page.events]
    last = frames[-1].seq if frames else after
    if selected.is_partial and not page.is_full:
        # The events up to the head were left out: a client that polls doesn't read them again.
        last = max(last, page.head)
    return selected.of(frames), last, page.is_full


async def read_one(pool: RawPool, scope: StreamScope, seq: int) -> Frame | None:
    """The run's event with this number, or the one that it was merged into."""
    assert scope.run_id is not None
    found = await event_log.event_at(pool, scope.tenant, scope.thread_id, scope.run_id, seq)
    return None if found is None else logged_frame(scope.thread_id, found)


async def last_cursor(pool: RawPool, scope: StreamScope) -> int:
    """The number of the thread's last event."""
    return (await event_log.read_after(pool, scope.tenant, scope.thread_id, 0, limit=1)).head
