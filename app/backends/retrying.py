"""Patience with what is out of reach for a moment: being deployed, busy, or cut off."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from app.backends.base import BackendError
from app.clock import sleep

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
T = TypeVar("T")


class TransientFailure(BackendError):
    """The same may work in a moment, and does no harm when it is tried again."""


async def retry_within(patience: float, attempt: Callable[[], Awaitable[T]]) -> T:
    """Try until it works, breaks for good, or has been in trouble for too long."""
    wait, since = FIRST_PAUSE, monotonic()
    while True:
        try:
            return await attempt()
        except TransientFailure:
            if monotonic() - since > patience:
                raise
        await sleep(wait)
        wait = min(2 * wait, LONGEST_PAUSE)
