"""Liveness: one heartbeat a second proves all of this worker's runs to be owned, and brings back wishes."""

import asyncio
import os
import socket

import structlog

from app.dispatch.worker import Worker
from app.domain.ids import RunId, Tenant
from app.storage import workers
from app.storage.database import DATABASE_AWAY, Database

CANCEL_CHANNEL = "holdfast_cancel"

log = structlog.get_logger(__name__)


class Liveness:
    def __init__(self, database: Database, worker: Worker, *, role: str, interval: float) -> None:
        self._database = database
        self._worker = worker
        self._role = role
        self._interval = interval
        self._stopping = asyncio.Event()
        self._beating = asyncio.Lock()

    async def beat(self) -> None:
        """One heartbeat; runs that somebody wants cancelled are interrupted."""
        async with self._beating:
            if self._stopping.is_set():
                return
            wishes = await workers.beat(
                self._database.hot, self._worker.me, self._role, socket.gethostname(), os.getpid()
            )
        for tenant, run_id, reason in wishes:
            self._worker.cancel(tenant, run_id, reason)

    async def run(self) -> None:
        """Beat until stopped; a database that is away for long costs us our runs, and it should."""
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(self._interval):
                    await self._stopping.wait()
            except TimeoutError:
                pass
            try:
                await self.beat()
            except DATABASE_AWAY as error:
                log.warning("heartbeat_missed", error=type(error).__name__)

    def heard(self, payload: str) -> None:
        """The fast path of a wish: whoever executes the run interrupts it at once."""
        tenant, run_id, reason = payload.split("\n", 2)
        self._worker.cancel(Tenant(tenant), RunId(run_id), reason or None)

    async def stop(self) -> None:
        """Leave the list of workers, once nothing is owned any more; no later beat may come back to it."""
        self._stopping.set()
        async with self._beating:
            await workers.leave(self._database.hot, self._worker.me)
