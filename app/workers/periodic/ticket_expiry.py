"""Ticket expiry: expires tickets whose time is over and sends reminders. Every process does it."""

import structlog

from app.commands.tickets.expire import ExpiryCounts, expire_due
from app.context import ServiceContext
from app.workers.periodic.loop import PeriodicJob

BATCH_SIZE = 100

log = structlog.get_logger(__name__)


class TicketExpiry(PeriodicJob):
    def __init__(self, ctx: ServiceContext, *, interval: float) -> None:
        super().__init__(interval=interval)
        self._ctx = ctx

    async def run_once(self) -> ExpiryCounts:
        counts = await expire_due(self._ctx, BATCH_SIZE)
        if counts != ExpiryCounts():
            log.info("ticket_expiry_done", expired=counts.expired, reminded=counts.reminded)
        return counts

    def log_outage(self, error: str) -> None:
        log.debug("ticket_expiry_failed", error=error)
