"""The loop of a periodic job."""

import asyncio
from abc import ABC, abstractmethod

from app.storage.postgres.database import DATABASE_UNAVAILABLE


class PeriodicJob(ABC):
    """Work that a process repeats until it stops."""

    def __init__(self, *, interval: float) -> None:
        self.interval = interval
        self.stopping = asyncio.Event()

    @abstractmethod
    async def run_once(self) -> object:
        """Do the work of one interval."""

    @abstractmethod
    def log_outage(self, error: str) -> None:
        """Log that an outage has ended this interval's work. The heartbeat reports the outage itself."""

    async def run(self) -> None:
        """Do the work once per interval until stopped; after an outage again with the next interval."""
        while await wait_for_next(self.stopping, self.interval):
            try:
                await self.run_once()
            except DATABASE_UNAVAILABLE as error:
                self.log_outage(type(error).__name__)

    def stop(self) -> None:
        self.stopping.set()


async def wait_for_next(stopping: asyncio.Event, interval: float) -> bool:
    """Wait for `interval` seconds; False if `stopping` is set before."""
    try:
        async with asyncio.timeout(interval):
            await stopping.wait()
    except TimeoutError:
        return True
    return False
