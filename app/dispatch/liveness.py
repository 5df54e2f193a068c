"""Liveness: one heartbeat a second proves all of this worker's runs to be owned, and brings back wishes."""

import asyncio
import os
import socket
from collections.abc import Sequence

import structlog

from app import telemetry
from app.dispatch.deafness import Deafness
from app.dispatch.rounds import next_round
from app.dispatch.tasks import TaskWorker
from app.dispatch.worker import Worker
from app.domain.errors import Reason
from app.domain.ids import RunId, Tenant
from app.storage import deliveries, runs, workers
from app.storage.database import DATABASE_AWAY, Database
from app.storage.outages import reason_of
from app.storage.runs import RunKey

LAST_PATIENCE = 1.0

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
        patience: float,
        deafness: Deafness,
    ) -> None:
        self._database = database
        self._worker = worker
        self._tasks = tasks
        self._role = role
        self._interval = interval
        self._patience = patience
        self._deafness = deafness
        self._stopping = asyncio.Event()
        self._beating = asyncio.Lock()
        self._strays: set[RunKey] = set()
        self.missed: Reason | None = None
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
                owned = await workers.beat(
                    self._database.hot,
                    self._worker.me,
                    self._role,
                    socket.gethostname(),
                    os.getpid(),
                )
        self.missed = None
        self._deafness.heard()
        telemetry.database_ready.set(1)
        for run in owned:
            if run.losses == 0:
                self._worker.trust(run.key)
            if run.is_unwanted:
                self._worker.cancel(run.key.tenant, run.key.run_id, run.reason)
        try:
            async with asyncio.timeout(self._patience):
                await self._release_strays(owned)
                await self._tasks.look()
        except DATABASE_AWAY as error:
            log.debug("owned_work_not_checked", reason=reason_of(error).value)

    async def _release_strays(self, owned: Sequence[workers.Owned]) -> None:
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
        while await next_round(self._stopping, self._interval):
            try:
                await self.beat()
            except DATABASE_AWAY as error:
                self.missed = reason_of(error)
                self._deafness.missed()
                telemetry.database_ready.set(0)
                log.debug("heartbeat_missed", reason=self.missed.value)

    def heard(self, payload: str) -> None:
        """The fast path of a wish: whoever executes the run interrupts it at once."""
        tenant, run_id, reason = payload.split("\n", 2)
        self._worker.cancel(Tenant(tenant), RunId(run_id), reason or None)

    async def stop(self) -> None:
        """Leave the list of workers, once nothing is owned any more; no later beat may come back to it.

        With the database away we stay on the list, and are found dead after a while.
        """
        self._stopping.set()
        try:
            async with asyncio.timeout(LAST_PATIENCE), self._beating:
                await workers.leave(self._database.hot, self._worker.me)
        except DATABASE_AWAY as error:
            log.warning("list_not_left", reason=reason_of(error).value)
