"""Fan-out within this process: who follows a thread gets what was committed, without any waiting.

A subscriber that doesn't keep up loses its queue, not the run its pace: the missing numbers tell
`follow.py` to read the log.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from app.domain.events.command_events import TICKET_EVENTS
from app.domain.ids import Tenant, ThreadId
from app.events.sse_encoding import EventBatch, Frame

ThreadKey: TypeAlias = tuple[Tenant, ThreadId]

MAX_BACKLOG_FRAMES = 1_000_000
"""Bytes that may wait for one subscriber before it has to read them from the log."""


class Subscription:
    """What has been committed to one thread since somebody began to listen."""

    def __init__(self, leave: Callable[["Subscription"], None]) -> None:
        self._leave = leave
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._missed = False
        self._arrived = asyncio.Event()
        self.cursor = 0
        """The last number that its reader has dealt with; kept by the reader."""

    def push(self, frames: Sequence[Frame]) -> None:
        self._bytes += sum(len(frame.data) for frame in frames)
        if self._bytes > MAX_BACKLOG_FRAMES:
            self.mark_missed()
            return
        self._frames.extend(frames)
        self._arrived.set()

    def mark_missed(self) -> None:
        """There is something in the log that won't be pushed."""
        self._frames.clear()
        self._bytes = 0
        self._missed = True
        self._arrived.set()

    async def next(self, timeout: float) -> list[Frame] | None:
        """All that has arrived; None when nothing did in time; empty when the log must be read."""
        if not self._arrived.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._arrived.wait()
            except TimeoutError:
                return None
        self._arrived.clear()
        frames = [] if self._missed else list(self._frames)
        self._frames.clear()
        self._bytes = 0
        self._missed = False
        return frames

    @property
    def is_idle(self) -> bool:
        return not self._arrived.is_set()

    def close(self) -> None:
        self._leave(self)


class TicketWatch:
    """Tells that something may have become of a tenant's tickets; what, its inbox knows."""

    def __init__(self, leave: Callable[["TicketWatch"], None]) -> None:
        self._leave = leave
        self._stirred = asyncio.Event()

    def notify(self) -> None:
        self._stirred.set()

    async def wait(self, timeout: float) -> None:
        """Until something may have happened, or so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._stirred.wait()
        self._stirred.clear()

    def close(self) -> None:
        self._leave(self)


class Hub:
    def __init__(self) -> None:
        self._followed: dict[ThreadKey, set[Subscription]] = {}
        self._watched: dict[Tenant, set[TicketWatch]] = {}

    def watch_tickets(self, tenant: Tenant) -> TicketWatch:
        """Be told when something may have become of a tenant's tickets."""

        def leave(watch: TicketWatch) -> None:
            others = self._watched.get(tenant, set())
            others.discard(watch)
            if not others:
                self._watched.pop(tenant, None)

        watch = TicketWatch(leave)
        self._watched.setdefault(tenant, set()).add(watch)
        return watch

    def subscribe(self, tenant: Tenant, thread_id: ThreadId) -> Subscription:
        """Listen to a thread from now on; close the subscription when done."""
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
        """Hand committed events to everybody who follows their thread; encode them if anybody does."""
        if batch.tenant in self._watched and any(
            entry.event_type in TICKET_EVENTS for entry in batch.entries
        ):
            self._notify(batch.tenant)
        subscriptions = self._followed.get((batch.tenant, batch.thread_id))
        if subscriptions:
            frames = list(batch.frames())
            for subscription in subscriptions:
                subscription.push(frames)

    def hint(self, key: ThreadKey) -> None:
        """Something was committed to a thread, but not told."""
        self._notify(key[0])
        for subscription in self._followed.get(key, ()):
            subscription.mark_missed()

    def _notify(self, tenant: Tenant) -> None:
        for watch in self._watched.get(tenant, ()):
            watch.notify()

    def hint_all(self) -> None:
        for key in list(self._followed):
            self.hint(key)
        for tenant in list(self._watched):
            self._notify(tenant)

    def hint_missed(self, heads: Mapping[ThreadKey, int]) -> None:
        """Wake those whose thread has gone on without their being told."""
        for key, head in heads.items():
            for subscription in self._followed.get(key, ()):
                if subscription.cursor < head and subscription.is_idle:
                    subscription.mark_missed()

    def followed(self) -> list[ThreadKey]:
        return list(self._followed)

    @property
    def subscribers(self) -> int:
        return sum(map(len, self._followed.values()))
