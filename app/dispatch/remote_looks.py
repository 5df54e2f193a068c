"""Remote looks: every process asks remote agents now and then whether they still wait for people."""

import asyncio

import structlog

from app.control.desk import Desk
from app.control.remote_looks import look_at_remotes
from app.dispatch.rounds import in_rounds

AT_ONCE = 50

log = structlog.get_logger(__name__)


class RemoteLooks:
    def __init__(self, desk: Desk, *, interval: float) -> None:
        self._desk = desk
        self._interval = interval
        self._stopping = asyncio.Event()

    async def look(self) -> int:
        woken = await look_at_remotes(self._desk, AT_ONCE)
        if woken:
            log.info("remotes_moved_on", runs=woken)
        return woken

    async def run(self) -> None:
        await in_rounds(self._stopping, self._interval, self.look, missed="remotes_not_looked_at")

    def stop(self) -> None:
        self._stopping.set()
