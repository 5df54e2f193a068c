"""Long polls: requests that wait for a run. They end early when the server stops."""

import asyncio
from collections.abc import Awaitable


class LongPolls:
    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()
        self._timeout_seconds: float | None = None

    async def hold(self, waiting: Awaitable[bool]) -> bool:
        """The result of `waiting`; False as soon as the server stops."""
        timeout = asyncio.timeout(self._timeout_seconds)
        try:
            async with timeout:
                self._open.add(timeout)
                try:
                    return await waiting
                finally:
                    self._open.discard(timeout)
        except TimeoutError:
            if not timeout.expired():
                raise
            return False

    def end_all(self) -> None:
        """End all waits, and those begun from now on. Clients get the current state and poll again."""
        self._timeout_seconds = 0
        for timeout in self._open:
            if not timeout.expired():
                timeout.reschedule(0)
