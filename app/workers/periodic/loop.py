"""Rounds: what a process does again and again for as long as it lives."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from app.storage.postgres.database import DATABASE_UNAVAILABLE

log = structlog.get_logger(__name__)


async def run_periodically(
    stopping: asyncio.Event, interval: float, work: Callable[[], Awaitable[object]], *, missed: str
) -> None:
    """Do some work once a round, until stopped. In an outage it is left out; others tell of that."""
    while await wait_for_next(stopping, interval):
        try:
            await work()
        except DATABASE_UNAVAILABLE as error:
            log.debug(missed, error=type(error).__name__)


async def wait_for_next(stopping: asyncio.Event, interval: float) -> bool:
    """Wait until the next one is due; False when the process stops instead."""
    try:
        async with asyncio.timeout(interval):
            await stopping.wait()
    except TimeoutError:
        return True
    return False
