"""Deadlines: every process looks at the clock now and then, for tickets that nobody answers."""

import asyncio

import structlog

from app.commands.tickets.expire import ExpiryCounts, expire_due
from app.context import ServiceContext
from app.workers.periodic.loop import run_periodically

BATCH_SIZE = 100

log = structlog.get_logger(__name__)


class TicketExpiry:
    def __init__(self, ctx: ServiceContext, *, interval: float) -> None:
        self._desk = ctx
        self._interval = interval
        self._stopping = asyncio.Event()

    async def run_once(self) -> ExpiryCounts:
        seen = await expire_due(self._desk, BATCH_SIZE)
        if seen != ExpiryCounts():
            log.info("deadlines", expired=seen.expired, reminded=seen.reminded)
        return seen

    async def run(self) -> None:
        await run_periodically(
            self._stopping, self._interval, self.run_once, missed="deadlines_missed"
        )

    def stop(self) -> None:
        self._stopping.set()
