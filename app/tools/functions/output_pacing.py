"""A tool that shows more than can be saved waits until it has been: an async one where it awaits, and a
plain function's thread where it shows.

Both without the tool's knowing: what it shows while the database is away must not fill the memory.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

from app.domain.events.event_sizes import size_of
from app.domain.events.run_events import AgentEvent

T = TypeVar("T")
WaitForCapacity = Callable[[], Awaitable[None]]

OUTPUT_TIME_SHARE = 65_536
"""Bytes that a thread may show between two looks for room."""
POLL_INTERVAL_SECONDS = 0.2


@coroutine
def paced(work: Coroutine[Any, Any, T], room: WaitForCapacity) -> Generator[Any, Any, T]:
    """Await some work; whenever it has waited for something, it waits for room as well."""
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        try:
            awaited = step()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            yield awaited
            yield from room().__await__()
        except BaseException as error:  # noqa: BLE001  it is the work's: a result that is one, or its end
            step = partial(work.throw, error)
        else:
            step = partial(work.send, None)


class ThreadEmitter:
    """What threads show on behalf of one call, said on the loop in order."""

    def __init__(
        self,
        say: Callable[[AgentEvent], None],
        room: WaitForCapacity,
        over: threading.Event,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._say = say
        self._room = room
        self._over = over
        self._loop = loop
        self._unsure = 0
        """Bytes handed over since there was room; several threads may count at once, roughly."""

    def emit(self, event: AgentEvent) -> None:
        if self._over.is_set():
            return
        self._loop.call_soon_threadsafe(self._say, event)
        self._unsure += size_of(event)
        if self._unsure > OUTPUT_TIME_SHARE:
            self._unsure = 0
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Or for the end of the call: then nobody hears the rest."""
        waiting = asyncio.run_coroutine_threadsafe(self._until_room(), self._loop)
        while not self._over.is_set():
            try:
                waiting.result(POLL_INTERVAL_SECONDS)
            except TimeoutError:
                continue
            return
        waiting.cancel()

    async def _until_room(self) -> None:
        await self._room()
