"""Remote polling: asks remote agents whether their tickets are still open. Every process does it."""

import structlog

from app.commands.followups.remote_polling import poll_remote_tickets
from app.context import ServiceContext
from app.workers.periodic.loop import PeriodicJob

BATCH_SIZE = 50

log = structlog.get_logger(__name__)


class RemotePolling(PeriodicJob):
    def __init__(self, ctx: ServiceContext, *, interval: float) -> None:
        super().__init__(interval=interval)
        self._ctx = ctx

    async def run_once(self) -> int:
        woken = await poll_remote_tickets(self._ctx, BATCH_SIZE)
        if woken:
            log.info("remote_polling_done", runs=woken)
        return woken

    def log_outage(self, error: str) -> None:
        log.debug("remote_polling_failed", error=error)
