"""A timer for waits that follow each other closely: most of them end early, and don't touch the event loop."""

import asyncio
from collections.abc import Callable
from math import inf


class MovingTimer:
    """Calls back when one wait takes too long. The loop's timer is moved only when it fires."""

    def __init__(self, on_late: Callable[[], None]) -> None:
        self._on_late = on_late
        self._due = inf
        """When the present wait is too long."""
        self._handle: asyncio.TimerHandle | None = None
        self._fires_at = inf

    def wait_for(self, seconds: float) -> None:
        """A wait begins that may take this long."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + seconds
        if self._handle is None or self._due < self._fires_at:
            self.cancel()
            self._start(loop)

    def rest(self) -> None:
        """The wait has ended."""
        self._due = inf

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._fires_at = self._due
        self._handle = loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        self._handle = None
        loop = asyncio.get_running_loop()
        if self._due <= loop.time():
            self._on_late()
        elif self._due < inf:
            self._start(loop)
