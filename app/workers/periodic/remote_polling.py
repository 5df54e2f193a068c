"""Remote polling: asks remote agents whether their tickets are still open. Every process does it."""

import asyncio

import structlog

from app.commands.followups.remote_polling import poll_remote_tickets
from app.context import ServiceContext
from app.workers.periodic.loop import run_periodically

BATCH_SIZE = 50

log = structlog.get_logger(__name__)


class RemotePolling:
    def __init__(self, ctx: ServiceContext, *, interval: float) -> None:
        self._ctx = ctx
        self._interval = interval
        self._stopping = asyncio.Event()

    async def run_once(self) -> int:
        woken = await poll_remote_tickets(self._ctx, BATCH_SIZE)
        if woken:
            log.info("remote_polling_done", runs=woken)
        return woken

    async def run(self) -> None:
        await run_periodically(
            self._stopping, self._interval, self.run_once, failure_event="remote_polling_failed"
        )

    def stop(self) -> None:
        self._stopping.set()
