"""How much memory this process takes at most while something runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import psutil

_INTERVAL_SECONDS = 0.01


@dataclass
class Growth:
    bytes: int = 0
    """The highest resident size so far, less that of the beginning."""


@asynccontextmanager
async def peak_growth() -> AsyncIterator[Growth]:
    """Sample the resident size a hundred times a second."""
    process, growth, stopped = psutil.Process(), Growth(), asyncio.Event()
    before: int = process.memory_info().rss

    async def sample() -> None:
        while not stopped.is_set():
            growth.bytes = max(growth.bytes, process.memory_info().rss - before)
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_SECONDS):
                    await stopped.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(sample())
        try:
            yield growth
        finally:
            stopped.set()
