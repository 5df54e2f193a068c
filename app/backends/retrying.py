"""Retries requests while a server is unreachable for a moment: deployed, busy or disconnected."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from app.backends.base import BackendError
from app.clock import sleep

FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.1, 2.0
T = TypeVar("T")


class TransientFailure(BackendError):
    """A request that may succeed later and is safe to retry."""


async def retry_within(timeout: float, attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry until the request succeeds, fails without remedy, or the time is over."""
    wait, since = FIRST_DELAY_SECONDS, monotonic()
    while True:
        try:
            return await attempt()
        except TransientFailure:
            if monotonic() - since > timeout:
                raise
        await sleep(wait)
        wait = min(2 * wait, MAX_DELAY_SECONDS)
