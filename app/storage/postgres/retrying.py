"""Repeats work during a database outage."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.clock import sleep
from app.storage.postgres.database import DATABASE_UNAVAILABLE

RETRY_INTERVAL_SECONDS = 0.25

T = TypeVar("T")


async def retry_while_unavailable(work: Callable[[], Awaitable[T]]) -> T:
    """Do `work` until it isn't interrupted by an outage. It must be safe to repeat."""
    while True:
        try:
            return await work()
        except DATABASE_UNAVAILABLE:
            await sleep(RETRY_INTERVAL_SECONDS)
