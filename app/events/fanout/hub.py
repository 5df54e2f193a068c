"""Fan-out within this process: pushes committed events to the subscribers of their thread, without waiting.

A subscriber that doesn't keep up loses its queue and doesn't slow the run: `follow` sees the gap in the
event numbers and reads the log.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct

from app.domain.events.agent_events import STATUS_EVENTS, TICKET_EVENTS
from app.domain.ids import Tenant, ThreadId
from app.events.sse_encoding import EventBatch, Frame

ThreadKey: TypeAlias = tuple[Tenant, ThreadId]

MAX_BACKLOG_BYTES = 1_000_000
"""Unread bytes of one subscriber above which its queue is dropped and it has to read the log."""


class Subscription:
    """The events that were committed to one thread since it was opened.

    Its one timer is moved only when it fires, because a reader waits once for each token.
    """

    def __init__(self, leave: Callable[["Subscription"], None]) -> None:
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._frames: list[Frame] = []
        self._bytes = 0
        self._missed = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self.is_idle = True
        """Nothing has arrived that its reader hasn't taken."""
        self.cursor = 0
        """The last event number that its reader has processed; set by the reader."""

    def push(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self._bytes += len(frame.short)
        if self._bytes > MAX_BACKLOG_BYTES:
            self.mark_missed()
            return
        self._frames.extend(frames)
        self._arrived()

    @property
    def first(self) -> Frame | None:
        """The frame that its reader takes next. None if there is none, or if the log must be read."""
        return self._frames[0] if self._frames and not self._missed else None

    def mark_missed(self) -> None:
        """Have the reader read the log: it has events that weren't pushed."""
        self._frames.clear()
        self._bytes = 0
        self._missed = True
        self._arrived()

    async def next(self, timeout: float) -> list[Frame] | None:
        """All events that have arrived; None after the time-out; empty if the log must be read."""
        if self.is_idle:
            self._set_deadline(self._loop.time() + timeout)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.is_idle:
            return None
        self.is_idle = True
        frames, self._frames = self._frames, []
        self._bytes = 0
        self._missed = False
        return frames

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._leave(self)

    def _arrived(self) -> None:
        self.is_idle = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is not None and self._timer.when() > deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._at_deadline)

    def _at_deadline(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._deadline:
            self._set_deadline(self._deadline)
        else:
            self._wake()


class TicketWatch:
    """Notifies a reader that a tenant's ticket feed may have changed."""

    def __init__(self, leave: Callable[["TicketWatch"], None]) -> None:
        self._leave = leave
        self._notified = asyncio.Event()

    def notify(self) -> None:
        self._notified.set()

    async def wait(self, timeout: float) -> None:
        """Wait for a notification, at most `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._notified.wait()
        self._notified.clear()

    def close(self) -> None:
        self._leave(self)


MAX_CHANGED_THREADS = 200
"""Threads that a watch names; with more, its reader has to read its lists again."""


class ChangeWatch:
    """Collects the threads of a tenant whose runs may have changed."""

    def __init__(self, leave: Callable[["ChangeWatch"], None]) -> None:
        self._leave = leave
        self._threads: set[ThreadId] = set()
        self._missed = False
        self._tickets = False
        self._notified = asyncio.Event()

    def note(self, thread_id: ThreadId, *, tickets: bool) -> None:
        if len(self._threads) < MAX_CHANGED_THREADS or thread_id in self._threads:
            self._threads.add(thread_id)
        else:
            self._missed = True
        self._tickets |= tickets
        self._notified.set()

    def mark_missed(self) -> None:
        """Any thread may have changed."""
        self._missed = True
        self._notified.set()

    async def wait(self) -> None:
        """Wait until something was noted."""
        await self._notified.wait()

    def take(self) -> "Noted":
        """What was noted since the last time."""
        noted = Noted(frozenset(self._threads), self._tickets, self._missed)
        self._threads.clear()
        self._tickets = self._missed = False
        self._notified.clear()
        return noted

    def close(self) -> None:
        self._leave(self)


class Noted(Struct, frozen=True):
    """Threads whose runs may have changed, whether tickets may have, and whether any other thread may have."""

    threads: frozenset[ThreadId]
    tickets: bool
    missed: bool


class Hub:
    def __init__(self) -> None:
        self._change_watches: dict[Tenant, set[ChangeWatch]] = {}
        self._followed: dict[ThreadKey, set[Subscription]] = {}
        self._watched: dict[Tenant, set[TicketWatch]] = {}

    def watch_tickets(self, tenant: Tenant) -> TicketWatch:
        """Watch a tenant's tickets from now on; close the watch when done."""

        def leave(watch: TicketWatch) -> None:
            others = self._watched.get(tenant, set())
            others.discard(watch)
            if not others:
                self._watched.pop(tenant, None)

        watch = TicketWatch(leave)
        self._watched.setdefault(tenant, set()).add(watch)
        return watch

    def watch_changes(self, tenant: Tenant) -> ChangeWatch:
        """Watch a tenant's runs from now on; close the watch when done."""

        def leave(watch: ChangeWatch) -> None:
            others = self._change_watches.get(tenant, set())
            others.discard(watch)
            if not others:
                self._change_watches.pop(tenant, None)

        watch = ChangeWatch(leave)
        self._change_watches.setdefault(tenant, set()).add(watch)
        return watch

    def subscribe(self, tenant: Tenant, thread_id: ThreadId) -> Subscription:
        """Subscribe to a thread from now on; close the subscription when done."""
        key = (tenant, thread_id)

        def leave(subscription: Subscription) -> None:
            others = self._followed.get(key, set())
            others.discard(subscription)
            if not others:
                self._followed.pop(key, None)

        subscription = Subscription(leave)
        self._followed.setdefault(key, set()).add(subscription)
        return subscription

    def publish(self, batch: EventBatch) -> None:
        """Push committed events to their thread's subscribers; they are encoded only if there are any."""
        if batch.tenant in self._watched and any(
            entry.event_type in TICKET_EVENTS for entry in batch.entries
        ):
            self._notify(batch.tenant)
        if batch.tenant in self._change_watches:
            self._note(batch)
        subscriptions = self._followed.get((batch.tenant, batch.thread_id))
        if subscriptions:
            frames = list(batch.frames())
            for subscription in subscriptions:
                subscription.push(frames)

    def hint(self, key: ThreadKey) -> None:
        """Events were committed to a thread, but aren't known here: have its readers read the log."""
        self._notify(key[0])
        for change_watch in self._change_watches.get(key[0], ()):
            change_watch.note(key[1], tickets=True)
        for subscription in self._followed.get(key, ()):
            subscription.mark_missed()

    def _note(self, batch: EventBatch) -> None:
        """Note the batch's thread for the tenant's watches, if a run may have another status."""
        types = {entry.event_type for entry in batch.entries}
        if types & STATUS_EVENTS:
            for watch in self._change_watches[batch.tenant]:
                watch.note(batch.thread_id, tickets=bool(types & TICKET_EVENTS))

    def _notify(self, tenant: Tenant) -> None:
        for watch in self._watched.get(tenant, ()):
            watch.notify()

    def hint_all(self) -> None:
        for key in list(self._followed):
            self.hint(key)
        for tenant in list(self._watched):
            self._notify(tenant)
        for watches in self._change_watches.values():
            for watch in watches:
                watch.mark_missed()

    def hint_missed(self, heads: Mapping[ThreadKey, int]) -> None:
        """Have those readers read the log whose thread has newer events."""
        for key, head in heads.items():
            for subscription in self._followed.get(key, ()):
                if subscription.cursor < head and subscription.is_idle:
                    subscription.mark_missed()

    def followed(self) -> list[ThreadKey]:
        return list(self._followed)

    @property
    def subscribers(self) -> int:
        return sum(map(len, self._followed.values()))
