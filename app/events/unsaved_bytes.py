"""Counts the bytes of events that aren't saved yet, and makes their run or tool wait above a limit.

This bounds the memory that events take while the database is slow or unavailable.
"""

import asyncio

from app.domain.errors import OutputOverflow
from app.domain.events.agent_events import AgentEvent
from app.domain.events.event_sizes import size_of
from app.domain.events.tool_call_events import TOOL_OUTPUT

MAX_UNSAVED_BYTES = 1_000_000
"""Unsaved bytes above which `wait_for_capacity` waits."""
MAX_TOOL_OUTPUT_BYTES = 8 * MAX_UNSAVED_BYTES
"""Unsaved bytes above which a tool's output is refused: the tool should have waited for capacity."""
BYTES_PER_EVENT = 200
"""Bytes that each event counts besides its content."""


class UnsavedBytes:
    def __init__(self) -> None:
        self._waiting = 0
        self._drained = asyncio.Event()
        self._is_closed = False

    def refuse_overflow(self, event: AgentEvent) -> None:
        """Raise `OutputOverflow` for a tool's output far above the limit."""
        if self._waiting > MAX_TOOL_OUTPUT_BYTES and isinstance(event, TOOL_OUTPUT):
            raise OutputOverflow

    def add(self, size: int) -> None:
        self._waiting += size

    def take(self, size: int) -> None:
        """Count bytes as saved."""
        self._waiting -= size
        self._drained.set()

    def clear(self) -> None:
        self._waiting = 0
        self._drained.set()

    def close(self) -> None:
        """Let waiters continue without capacity: later events are dropped."""
        self._is_closed = True
        self.clear()

    async def wait_for_capacity(self) -> None:
        while self._waiting > MAX_UNSAVED_BYTES and not self._is_closed:
            self._drained.clear()
            await self._drained.wait()


def weight(event: AgentEvent) -> int:
    """The bytes that an event counts if it isn't merged with another."""
    return BYTES_PER_EVENT + size_of(event)
