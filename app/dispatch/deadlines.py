"""Deadlines: every process looks at the clock now and then, for tickets that nobody answers."""

import asyncio

import structlog

from app.control.desk import Desk
from app.control.expire import Seen, look_at_the_clock
from app.dispatch.rounds import in_rounds

AT_ONCE = 100

log = structlog.get_logger(__name__)


class Deadlines:
    def __init__(self, desk: Desk, *, interval: float) -> None:
        self._desk = desk
        self._interval = interval
        self._stopping = asyncio.Event()

    async def look(self) -> Seen:
        seen = await look_at_the_clock(self._desk, AT_ONCE)
        if seen != Seen():
            log.info("deadlines", expired=seen.expired, reminded=seen.reminded)
        return seen

    async def run(self) -> None:
        await in_rounds(self._stopping, self._interval, self.look, missed="deadlines_missed")

    def stop(self) -> None:
        self._stopping.set()
