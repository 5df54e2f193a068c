"""The sweeper enqueues runs, tasks and follow-ups that lost their delivery or their worker.

Every process has one; an advisory lock lets one at a time work. The lock only saves work, because duplicates are
harmless. So a process that doesn't get it for long works without it: its holder may be frozen.
"""

import time

import structlog

from app.agents.registry import AgentRegistry
from app.domain.children.followups import Followup
from app.storage.children import background_tasks, lost_followups
from app.storage.postgres.database import Connection, Database
from app.storage.queue import deliveries, run_ends
from app.storage.runs import unattended
from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.periodic.loop import PeriodicJob

BATCH_SIZE = 100
FOLLOWUP_GRACE_SECONDS = 5.0
"""Seconds before a follow-up that is still due counts as lost. pgqueuer redelivers the job of a dead worker
itself. A follow-up that only waits for its turn may run twice, which is harmless."""

log = structlog.get_logger(__name__)


class Sweeper(PeriodicJob):
    def __init__(
        self,
        database: Database,
        registry: AgentRegistry,
        *,
        interval: float,
        heartbeat_timeout: float,
        outage_allowance: OutageAllowance,
    ) -> None:
        super().__init__(interval=interval)
        self._database = database
        self._registry = registry
        self._heartbeat_timeout = heartbeat_timeout
        self._outage_allowance = outage_allowance
        self._refused_since: float | None = None

    async def run_once(self) -> int:
        """Enqueue runs and tasks without worker or delivery, runs that can resume, and lost follow-ups.

        Returns how many weren't in the queue already.
        """
        timeout = self._heartbeat_timeout + self._outage_allowance.seconds()
        async with self._database.transaction() as connection:
            if not await self._may_sweep(connection):
                return 0
            swept = await self._enqueue_runs(connection, timeout)
            tasks = await self._enqueue_tasks(connection, timeout)
            followups = await _enqueue_followups(connection, timeout)
        # What waits in the queue for a free worker is found each time, and isn't logged again.
        if enqueued := swept + tasks + followups:
            log.info("sweep_done", runs=swept, tasks=tasks, followups=followups)
        return enqueued

    async def _may_sweep(self, connection: Connection) -> bool:
        """Whether this process has the lock, or hasn't got it for a heartbeat time-out."""
        now = time.monotonic()
        if await unattended.may_sweep(connection):
            self._refused_since = None
            return True
        if self._refused_since is None:
            self._refused_since = now
        seconds = now - self._refused_since
        if seconds < self._heartbeat_timeout:
            return False
        log.warning("sweep_lock_held", seconds=round(seconds, 1))
        return True

    async def _enqueue_runs(self, connection: Connection, timeout: float) -> int:
        grace = 2 * self.interval
        found = await unattended.without_owner(
            connection, heartbeat_timeout=timeout, grace=grace, limit=BATCH_SIZE
        )
        found += await unattended.with_unnoticed_decision(connection, grace=grace, limit=BATCH_SIZE)
        found += await unattended.with_unread_input(connection, grace=grace, limit=BATCH_SIZE)
        found += await unattended.resumed(connection, grace=grace, limit=BATCH_SIZE)
        found += await unattended.past_rate_limit(connection, grace=grace, limit=BATCH_SIZE)
        found += await unattended.waiting_for_version(
            connection, self._registry.known_versions(), BATCH_SIZE
        )
        enqueued = [await deliveries.enqueue(connection, key) for key in found]
        to_cancel = await unattended.with_cancel_request(
            connection, heartbeat_timeout=timeout, grace=grace, limit=BATCH_SIZE
        )
        enqueued += [await deliveries.enqueue(connection, key, is_cancel=True) for key in to_cancel]
        return sum(enqueued)

    async def _enqueue_tasks(self, connection: Connection, timeout: float) -> int:
        lost = await background_tasks.without_owner(
            connection, heartbeat_timeout=timeout, grace=2 * self.interval, limit=BATCH_SIZE
        )
        return sum([await deliveries.enqueue_task(connection, task) for task in lost])

    def log_outage(self, error: str) -> None:
        log.debug("sweep_failed", error=error)


async def _enqueue_followups(connection: Connection, timeout: float) -> int:
    grace = min(FOLLOWUP_GRACE_SECONDS, timeout)
    due: list[Followup] = []
    due += await lost_followups.of_children(connection, grace=grace, limit=BATCH_SIZE)
    due += await run_ends.overdue(connection, grace=grace, limit=BATCH_SIZE)
    return sum([await deliveries.enqueue_followup(connection, one, is_found=True) for one in due])
