"""Liveness: one heartbeat a second proves all of this worker's runs to be owned, and brings back wishes."""

import asyncio
import os
import socket
from collections.abc import Sequence

import structlog

from app import telemetry
from app.domain.errors import UnavailableReason
from app.domain.ids import RunId, Tenant
from app.storage import workers
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.errors import reason_of
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.workers.background_tasks.worker import TaskWorker
from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.periodic.loop import wait_for_next
from app.workers.worker import Worker

LEAVE_TIMEOUT_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Heartbeat:
    def __init__(
        self,
        database: Database,
        worker: Worker,
        tasks: TaskWorker,
        *,
        role: str,
        interval: float,
        patience: float,
        outage_allowance: OutageAllowance,
    ) -> None:
        self._database = database
        self._worker = worker
        self._tasks = tasks
        self._role = role
        self._interval = interval
        self._patience = patience
        self._deafness = outage_allowance
        self._stopping = asyncio.Event()
        self._beating = asyncio.Lock()
        self._strays: set[RunKey] = set()
        self.missed: UnavailableReason | None = None
        """Why the last heartbeat couldn't be written."""

    async def beat(self) -> None:
        """One heartbeat, given up early enough for another one; runs that somebody wants cancelled are
        interrupted.

        What else is looked after here has a time-out of its own: a row that another transaction has locked
        must not delay the next heartbeat.
        """
        async with self._beating:
            if self._stopping.is_set():
                return
            async with asyncio.timeout(self._patience):
                owned = await workers.heartbeat(
                    self._database.pool,
                    self._worker.worker_id,
                    self._role,
                    socket.gethostname(),
                    os.getpid(),
                )
        self.missed = None
        self._deafness.heartbeat_succeeded()
        telemetry.database_ready.set(1)
        for run in owned:
            if run.losses == 0:
                self._worker.record_progress(run.key)
            if run.cancel_requested:
                self._worker.cancel(run.key.tenant, run.key.run_id, run.reason)
        try:
            async with asyncio.timeout(self._patience):
                await self._release_strays(owned)
                await self._tasks.check_owned()
        except DATABASE_UNAVAILABLE as error:
            log.debug("owned_work_not_checked", reason=reason_of(error).value)

    async def _release_strays(self, owned: Sequence[workers.OwnedRun]) -> None:
        """A run that is ours and that nobody executes was claimed by a commit whose reply was lost. Seen
        twice, it is let go: while this process lives, nobody else would find it.
        """
        strays = {run.key for run in owned if not self._worker.executes(run.key)}
        for key in strays & self._strays:
            log.warning("stray_run_let_go", run_id=key.run_id, attempt=key.attempt)
            async with self._database.transaction() as connection:
                if await runs.release(connection, key.tenant, key.run_id, key.attempt, failed=True):
                    await deliveries.enqueue(connection, key)
        self._strays = strays

    async def run(self) -> None:
        """Beat until stopped; a database that is away for long costs us our runs, and it should."""
        while await wait_for_next(self._stopping, self._interval):
            try:
                await self.beat()
            except DATABASE_UNAVAILABLE as error:
                self.missed = reason_of(error)
                self._deafness.heartbeat_failed()
                telemetry.database_ready.set(0)
                log.debug("heartbeat_missed", reason=self.missed.value)

    def on_cancel_hint(self, payload: str) -> None:
        """The fast path of a wish: whoever executes the run interrupts it at once."""
        tenant, run_id, reason = payload.split("\n", 2)
        self._worker.cancel(Tenant(tenant), RunId(run_id), reason or None)

    async def stop(self) -> None:
        """Leave the list of workers, once nothing is owned any more; no later beat may come back to it.

        With the database away we stay on the list, and are found dead after a while.
        """
        self._stopping.set()
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_SECONDS), self._beating:
                await workers.remove(self._database.pool, self._worker.worker_id)
        except DATABASE_UNAVAILABLE as error:
            log.warning("list_not_left", reason=reason_of(error).value)
