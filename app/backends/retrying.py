"""Retries of requests to a server that is out of reach for a moment: deployed, busy or cut off."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from app.backends.base import BackendError
from app.clock import sleep

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
T = TypeVar("T")


class TransientFailure(BackendError):
    """A request that may succeed later and is safe to retry."""


async def retry_within(patience: float, attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry until it succeeds, fails for good, or has failed for too long."""
    wait, since = FIRST_PAUSE, monotonic()
    while True:
        try:
            return await attempt()
        except TransientFailure:
            if monotonic() - since > patience:
                raise
        await sleep(wait)
        wait = min(2 * wait, LONGEST_PAUSE)
