"""The heartbeat: one UPDATE a second keeps this worker's runs its own, and reads their cancel requests."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

import structlog

from app import telemetry
from app.domain.errors import UnavailableReason
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
        timeout: float,
        outage_allowance: OutageAllowance,
        on_others: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`on_others` gets, with each heartbeat, whether other processes live."""
        self._database = database
        self._worker = worker
        self._tasks = tasks
        self._role = role
        self._interval = interval
        self._timeout = timeout
        self._outage_allowance = outage_allowance
        self._on_others = on_others
        self._stopping = asyncio.Event()
        self._heartbeat_lock = asyncio.Lock()
        self._strays: set[RunKey] = set()
        self.last_failure: UnavailableReason | None = None
        """Why the last heartbeat could not be written; None if it was."""

    async def write(self) -> None:
        """Write one heartbeat, with a time-out that leaves time for another; interrupt cancelled runs.

        The other checks have a time-out of their own: a row that another transaction has locked must not
        delay the next heartbeat.
        """
        async with self._heartbeat_lock:
            if self._stopping.is_set():
                return
            async with asyncio.timeout(self._timeout):
                answer = await workers.heartbeat(
                    self._database.pool,
                    self._worker.worker_id,
                    self._role,
                    socket.gethostname(),
                    os.getpid(),
                )
        self.last_failure = None
        owned = answer.owned
        self._on_others(answer.has_others)
        self._outage_allowance.heartbeat_succeeded()
        telemetry.database_ready.set(1)
        for run in owned:
            if run.losses == 0:
                self._worker.record_progress(run.key)
            if run.cancel_requested:
                self._worker.cancel(run.key.tenant, run.key.run_id, run.reason)
        try:
            async with asyncio.timeout(self._timeout):
                await self._release_strays(owned)
                await self._tasks.check_owned()
        except DATABASE_UNAVAILABLE as error:
            log.debug("owned_work_not_checked", reason=reason_of(error).value)

    async def _release_strays(self, owned: Sequence[workers.OwnedRun]) -> None:
        """Release runs that this worker owns and doesn't execute: the reply to their claim was lost.

        The second heartbeat that sees such a run releases it: no other worker claims it while this process
        lives.
        """
        strays = {run.key for run in owned if not self._worker.executes(run.key)}
        for key in strays & self._strays:
            log.warning("unexecuted_run_released", run_id=key.run_id, attempt=key.attempt)
            async with self._database.transaction() as connection:
                if await runs.release(connection, key.tenant, key.run_id, key.attempt, failed=True):
                    await deliveries.enqueue(connection, key)
        self._strays = strays

    async def run(self) -> None:
        """Heartbeat until stopped. In a long outage other workers take this worker's runs over."""
        while await wait_for_next(self._stopping, self._interval):
            try:
                await self.write()
            except DATABASE_UNAVAILABLE as error:
                self.last_failure = reason_of(error)
                self._outage_allowance.heartbeat_failed()
                self._on_others(True)
                telemetry.database_ready.set(0)
                log.debug("heartbeat_missed", reason=self.last_failure.value)

    async def stop(self) -> None:
        """Delete this worker's row once it owns nothing; no later heartbeat may insert it again.

        In an outage the row stays, and counts as dead after the heartbeat time-out.
        """
        self._stopping.set()
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_SECONDS), self._heartbeat_lock:
                await workers.remove(self._database.pool, self._worker.worker_id)
        except DATABASE_UNAVAILABLE as error:
            log.warning("worker_row_not_deleted", reason=reason_of(error).value)
