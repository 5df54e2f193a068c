"""A feed that one task reads for all of its followers in this process.

It keeps what it has read last, once for all followers. A follower takes what is after its own cursor. So it slows no
other follower, and one that is too slow finds that the feed no longer has all of it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from typing import TypeAlias

import structlog
from msgspec import Struct

from app.domain.ids import AgentId
from app.events.sse_encoding import Frame

MAX_KEPT_BYTES = 1_000_000
"""Bytes of frames that a feed keeps for followers that haven't taken them yet."""

log = structlog.get_logger(__name__)


class Entry(Struct, frozen=True):
    """A frame of the feed. Agent and tool are those of its ticket, for followers of only some tickets."""

    number: int
    frame: Frame
    agent_id: AgentId | None = None
    tool_name: str | None = None


class FeedFailed(Exception):
    """The task that reads a feed has failed."""


class SharedFeed:
    """Entries with rising numbers. The task runs from `begin` to the end of the last follower."""

    def __init__(self, read: "ReadFeed", on_unused: Callable[[], None]) -> None:
        self._read = read
        self._on_unused = on_unused
        self._task: asyncio.Task[None] | None = None
        self._kept: deque[Entry] = deque()
        self._kept_bytes = 0
        self._kept_after = 0
        """All entries with a higher number are kept."""
        self._published = asyncio.Event()
        """Of the next publication; each has an event of its own."""
        self.followers = 0
        self.head = 0
        """The feed was read up to this number."""

    def begin(self, after: int) -> None:
        """Start the task, which reads what is after this number, unless it has started."""
        if self._task is None:
            self.head = self._kept_after = after
            # A context of its own: the task outlives the request of the follower that began it.
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._read(self), context=Context())
            self._task.add_done_callback(self._on_end)

    def publish(self, entries: Sequence[Entry], head: int) -> None:
        """Keep what was read after the last publication, and wake the followers."""
        self._kept.extend(entries)
        self._kept_bytes += sum(len(entry.frame.short) for entry in entries)
        while self._kept_bytes > MAX_KEPT_BYTES:
            oldest = self._kept.popleft()
            self._kept_bytes -= len(oldest.frame.short)
            self._kept_after = oldest.number
        self.head = head
        if entries:
            self._wake()

    def after(self, cursor: int) -> list[Entry] | None:
        """The entries after a cursor; None if the feed doesn't have all of them."""
        if self._task is None or cursor < self._kept_after:
            return None
        if cursor >= self.head:
            return []
        newer: deque[Entry] = deque()
        for entry in reversed(self._kept):
            if entry.number <= cursor:
                break
            newer.appendleft(entry)
        return list(newer)

    async def wait(self, cursor: int, timeout: float) -> None:
        """Wait until there are entries after a cursor, at most `timeout` seconds."""
        if self._task is not None and self._task.done():
            raise FeedFailed
        if cursor < self.head:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._published.wait()
        if self._task is not None and self._task.done():
            raise FeedFailed

    def join(self) -> None:
        self.followers += 1

    def leave(self) -> None:
        """A follower ends. With the last one, the task ends."""
        self.followers -= 1
        if self.followers == 0:
            self._on_unused()
            if self._task is not None:
                self._task.cancel()

    def _wake(self) -> None:
        self._published.set()
        self._published = asyncio.Event()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("feed_failed", exc_info=error)
            self._on_unused()
            self._wake()


ReadFeed: TypeAlias = Callable[[SharedFeed], Coroutine[None, None, None]]
"""Reads a feed without end, and publishes what it has read."""
