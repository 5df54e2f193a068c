"""Ticket expiry: expires tickets whose time is over and sends reminders. Every process does it."""

import asyncio

import structlog

from app.commands.tickets.expire import ExpiryCounts, expire_due
from app.context import ServiceContext
from app.workers.periodic.loop import run_periodically

BATCH_SIZE = 100

log = structlog.get_logger(__name__)


class TicketExpiry:
    def __init__(self, ctx: ServiceContext, *, interval: float) -> None:
        self._ctx = ctx
        self._interval = interval
        self._stopping = asyncio.Event()

    async def run_once(self) -> ExpiryCounts:
        counts = await expire_due(self._ctx, BATCH_SIZE)
        if counts != ExpiryCounts():
            log.info("ticket_expiry_done", expired=counts.expired, reminded=counts.reminded)
        return counts

    async def run(self) -> None:
        await run_periodically(
            self._stopping, self._interval, self.run_once, failure_event="ticket_expiry_failed"
        )

    def stop(self) -> None:
        self._stopping.set()
