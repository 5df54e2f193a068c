"""The clock and the source of new ids. All other code gets the time and new ids from here."""

import asyncio
from datetime import UTC, datetime
from typing import Protocol

from uuid_utils import uuid7


class Clock(Protocol):
    def now(self) -> datetime: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  the one place that reads the wall clock


async def sleep(seconds: float) -> None:
    """Sleep. Use it only where no signal can end the wait earlier."""
    never = asyncio.Event()
    try:
        async with asyncio.timeout(seconds):
            await never.wait()
    except TimeoutError:
        return


async def yield_to_loop() -> None:
    """Yield to the event loop: all ready tasks run once."""
    await asyncio.sleep(0)  # noqa: TID251  no time passes


def new_id() -> str:
    """Return a new id that sorts by its creation time, so that indexes grow at one end."""
    return str(uuid7())
