"""Liveness: one heartbeat a second proves all of this worker's runs to be owned, and brings back wishes."""

import asyncio
import os
import socket

import structlog

from app.dispatch.tasks import TaskWorker
from app.dispatch.worker import Worker
from app.domain.ids import RunId, Tenant
from app.storage import deliveries, runs, workers
from app.storage.database import DATABASE_AWAY, Database
from app.storage.runs import RunKey

CANCEL_CHANNEL = "holdfast_cancel"

log = structlog.get_logger(__name__)


class Liveness:
    def __init__(
        self,
        database: Database,
        worker: Worker,
        tasks: TaskWorker,
        *,
        role: str,
        interval: float,
    ) -> None:
        self._database = database
        self._worker = worker
        self._tasks = tasks
        self._role = role
        self._interval = interval
        self._stopping = asyncio.Event()
        self._beating = asyncio.Lock()
        self._strays: set[RunKey] = set()

    async def beat(self) -> None:
        """One heartbeat; runs that somebody wants cancelled are interrupted.

        A run that is ours and that nobody executes was claimed by a commit whose reply was lost. Seen
        twice, it is let go: while this process lives, nobody else would find it.
        """
        async with self._beating:
            if self._stopping.is_set():
                return
            owned = await workers.beat(
                self._database.hot, self._worker.me, self._role, socket.gethostname(), os.getpid()
            )
        for run in owned:
            if run.losses == 0:
                self._worker.trust(run.key)
            if run.is_unwanted:
                self._worker.cancel(run.key.tenant, run.key.run_id, run.reason)
        strays = {run.key for run in owned if not self._worker.executes(run.key)}
        for key in strays & self._strays:
            log.warning("stray_run_let_go", run_id=key.run_id, attempt=key.attempt)
            async with self._database.transaction() as connection:
                if await runs.release(connection, key.tenant, key.run_id, key.attempt, failed=True):
                    await deliveries.enqueue(connection, key)
        self._strays = strays
        await self._tasks.look()

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
