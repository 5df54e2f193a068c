"""Long polls: requests that wait for a run, but for no server that is about to stop."""

import asyncio
from collections.abc import Awaitable


class LongPolls:
    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()
        self._patience: float | None = None

    async def hold(self, waiting: Awaitable[bool]) -> bool:
        """What is found by waiting; False as soon as the server stops."""
        life = asyncio.timeout(self._patience)
        try:
            async with life:
                self._open.add(life)
                try:
                    return await waiting
                finally:
                    self._open.discard(life)
        except TimeoutError:
            if not life.expired():
                raise
            return False

    def give_up(self) -> None:
        """The server stops: clients are told how things stand, and ask again, here or elsewhere."""
        self._patience = 0
        for life in self._open:
            if not life.expired():
                life.reschedule(0)
