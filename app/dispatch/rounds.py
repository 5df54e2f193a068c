"""Rounds: what a process does again and again for as long as it lives."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from app.storage.database import DATABASE_AWAY

log = structlog.get_logger(__name__)


async def in_rounds(
    stopping: asyncio.Event, interval: float, work: Callable[[], Awaitable[object]], *, missed: str
) -> None:
    """Do some work once a round, until stopped. In an outage it is left out; others tell of that."""
    while await next_round(stopping, interval):
        try:
            await work()
        except DATABASE_AWAY as error:
            log.debug(missed, error=type(error).__name__)


async def next_round(stopping: asyncio.Event, interval: float) -> bool:
    """Wait until the next one is due; False when the process stops instead."""
    try:
        async with asyncio.timeout(interval):
            await stopping.wait()
    except TimeoutError:
        return True
    return False
