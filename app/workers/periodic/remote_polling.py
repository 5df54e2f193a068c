"""Remote looks: every process asks remote agents now and then whether they still wait for people."""

import asyncio

import structlog

from app.commands.followups.remote_polling import poll_remote_tickets
from app.context import ServiceContext
from app.workers.periodic.loop import run_periodically

BATCH_SIZE = 50

log = structlog.get_logger(__name__)


class RemotePolling:
    def __init__(self, ctx: ServiceContext, *, interval: float) -> None:
        self._desk = ctx
        self._interval = interval
        self._stopping = asyncio.Event()

    async def run_once(self) -> int:
        woken = await poll_remote_tickets(self._desk, BATCH_SIZE)
        if woken:
            log.info("remotes_moved_on", runs=woken)
        return woken

    async def run(self) -> None:
        await run_periodically(
            self._stopping, self._interval, self.run_once, missed="remotes_not_looked_at"
        )

    def stop(self) -> None:
        self._stopping.set()
