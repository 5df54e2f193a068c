"""Slows down tools that emit output faster than it can be saved.

An async function waits where it awaits something. A plain function's thread waits where it emits. So unsaved
output doesn't fill the memory while the database is unavailable.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

from app.domain.events.agent_events import AgentEvent
from app.domain.events.event_sizes import size_of

T = TypeVar("T")
WaitForCapacity = Callable[[], Awaitable[None]]

MAX_UNCHECKED_BYTES = 65_536
"""Bytes that a thread may emit before it waits for capacity again."""
POLL_INTERVAL_SECONDS = 0.2


@coroutine
def paced(
    work: Coroutine[Any, Any, T], wait_for_capacity: WaitForCapacity
) -> Generator[Any, Any, T]:
    """Await `work`. After each of its own waits, also waits for capacity."""
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        try:
            awaited = step()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            yield awaited
            yield from wait_for_capacity().__await__()
        except BaseException as error:  # noqa: BLE001  passed on to the work
            step = partial(work.throw, error)
        else:
            step = partial(work.send, None)


class ThreadEmitter:
    """Emits events of the threads of one call on the loop, in order."""

    def __init__(
        self,
        emit: Callable[[AgentEvent], None],
        wait_for_capacity: WaitForCapacity,
        over: threading.Event,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._emit = emit
        self._wait_for_capacity = wait_for_capacity
        self._over = over
        self._loop = loop
        self._unchecked = 0
        """Bytes since the last wait. Several threads may count at once, so it is approximate."""

    def emit(self, event: AgentEvent) -> None:
        if self._over.is_set():
            return
        self._loop.call_soon_threadsafe(self._emit, event)
        self._unchecked += size_of(event)
        if self._unchecked > MAX_UNCHECKED_BYTES:
            self._unchecked = 0
            self._block_until_capacity()

    def _block_until_capacity(self) -> None:
        """Block the thread until there is capacity, or until the call has ended."""
        waiting = asyncio.run_coroutine_threadsafe(self._until_capacity(), self._loop)
        while not self._over.is_set():
            try:
                waiting.result(POLL_INTERVAL_SECONDS)
            except TimeoutError:
                continue
            return
        waiting.cancel()

    async def _until_capacity(self) -> None:
        await self._wait_for_capacity()
