"""Time and fresh ids: the two things that nobody may take out of thin air."""

import asyncio
from datetime import UTC, datetime
from typing import Protocol

from uuid_utils.compat import uuid7


class Clock(Protocol):
    def now(self) -> datetime: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  the one place that reads the wall clock


async def sleep(seconds: float) -> None:
    """Let time pass, where nothing will tell when to go on."""
    never = asyncio.Event()
    try:
        async with asyncio.timeout(seconds):
            await never.wait()
    except TimeoutError:
        return


async def yield_to_loop() -> None:
    """Let everything else that is ready run once."""
    await asyncio.sleep(0)  # noqa: TID251  no time passes


def new_id() -> str:
    """A fresh id that sorts by the time of its making, so that indexes grow at their right edge."""
    return str(uuid7())
