"""A backlog: how much has been said that isn't saved, in bytes, and room for more once it is.

It bounds what the memory holds while the database is slow or away, whoever is chatty.
"""

import asyncio

from app.domain.errors import OutputOverflow
from app.domain.events.event_sizes import size_of
from app.domain.events.run_events import TOOL_OUTPUT, AgentEvent

MAX_UNSAVED_BYTES = 1_000_000
"""Bytes that may wait before whoever goes on saying things has to wait too."""
MAX_TOOL_OUTPUT_BYTES = 8 * MAX_UNSAVED_BYTES
"""Bytes that may wait when a tool shows more: it has had the chance to wait, and didn't take it."""
BYTES_PER_EVENT = 200
"""Bytes that an event counts for, whatever is in it."""


class UnsavedBytes:
    def __init__(self) -> None:
        self._waiting = 0
        self._drained = asyncio.Event()
        self._is_closed = False

    def refuse_overflow(self, event: AgentEvent) -> None:
        """Raises `OutputOverflow` when a tool shows far more than there is room for."""
        if self._waiting > MAX_TOOL_OUTPUT_BYTES and isinstance(event, TOOL_OUTPUT):
            raise OutputOverflow

    def add(self, size: int) -> None:
        self._waiting += size

    def take(self, size: int) -> None:
        """So much doesn't wait any more."""
        self._waiting -= size
        self._drained.set()

    def clear(self) -> None:
        self._waiting = 0
        self._drained.set()

    def close(self) -> None:
        """Nobody is heard any more: nobody waits."""
        self._is_closed = True
        self.clear()

    async def wait_for_capacity(self) -> None:
        while self._waiting > MAX_UNSAVED_BYTES and not self._is_closed:
            self._drained.clear()
            await self._drained.wait()


def weight(event: AgentEvent) -> int:
    """Bytes that an event counts for where it isn't joined with another one."""
    return BYTES_PER_EVENT + size_of(event)
