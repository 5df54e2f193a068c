"""The loop of a periodic job."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from app.storage.postgres.database import DATABASE_UNAVAILABLE

log = structlog.get_logger(__name__)


async def run_periodically(
    stopping: asyncio.Event,
    interval: float,
    work: Callable[[], Awaitable[object]],
    *,
    failure_event: str,
) -> None:
    """Do `work` once per interval until stopped. An outage skips a turn, and is logged as
    `failure_event` at debug level only: the heartbeat reports outages."""
    while await wait_for_next(stopping, interval):
        try:
            await work()
        except DATABASE_UNAVAILABLE as error:
            log.debug(failure_event, error=type(error).__name__)


async def wait_for_next(stopping: asyncio.Event, interval: float) -> bool:
    """Wait for `interval` seconds; False if `stopping` is set before."""
    try:
        async with asyncio.timeout(interval):
            await stopping.wait()
    except TimeoutError:
        return True
    return False
