"""The sweeper enqueues runs, tasks and follow-ups that lost their delivery or their worker.

Every process has one; an advisory lock lets one at a time work.
"""

import asyncio

import structlog

from app.agents.registry import AgentRegistry
from app.domain.children.followups import Followup
from app.storage.children import background_tasks, lost_followups
from app.storage.postgres.database import Database
from app.storage.queue import cancel_requests, deliveries, run_ends
from app.storage.runs import runs
from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.periodic.loop import run_periodically

BATCH_SIZE = 100
FOLLOWUP_GRACE_SECONDS = 5.0
"""Seconds before a follow-up that is still due counts as lost. pgqueuer redelivers the job of a dead worker
itself. A follow-up that only waits for its turn may run twice, which is harmless."""

log = structlog.get_logger(__name__)


class Sweeper:
    def __init__(
        self,
        database: Database,
        registry: AgentRegistry,
        *,
        interval: float,
        heartbeat_timeout: float,
        outage_allowance: OutageAllowance,
    ) -> None:
        self._database = database
        self._registry = registry
        self._interval = interval
        self._heartbeat_timeout = heartbeat_timeout
        self._outage_allowance = outage_allowance
        self._stopping = asyncio.Event()

    async def run_once(self) -> int:
        """Enqueue runs and tasks without worker or delivery, runs that can resume, and lost follow-ups."""
        timeout = self._heartbeat_timeout + self._outage_allowance.seconds()
        async with self._database.transaction() as connection:
            if not await runs.may_sweep(connection):
                return 0
            found = await runs.without_owner(
                connection,
                heartbeat_timeout=timeout,
                grace=2 * self._interval,
                limit=BATCH_SIZE,
            )
            found += await runs.with_unnoticed_decision(
                connection, grace=2 * self._interval, limit=BATCH_SIZE
            )
            found += await runs.with_unread_input(
                connection, grace=2 * self._interval, limit=BATCH_SIZE
            )
            found += await runs.resumed(connection, grace=2 * self._interval, limit=BATCH_SIZE)
            found += await runs.past_rate_limit(
                connection, grace=2 * self._interval, limit=BATCH_SIZE
            )
            found += await runs.waiting_for_version(
                connection, self._registry.known_versions(), BATCH_SIZE
            )
            for key in found:
                await deliveries.enqueue(connection, key)
            to_cancel = await cancel_requests.unattended(
                connection,
                heartbeat_timeout=timeout,
                grace=2 * self._interval,
                limit=BATCH_SIZE,
            )
            for key in to_cancel:
                await deliveries.enqueue(connection, key, is_cancel=True)
            lost = await background_tasks.without_owner(
                connection,
                heartbeat_timeout=timeout,
                grace=2 * self._interval,
                limit=BATCH_SIZE,
            )
            for task in lost:
                await deliveries.enqueue_task(connection, task)
            followups: list[Followup] = []
            followups += await lost_followups.of_children(
                connection, grace=min(FOLLOWUP_GRACE_SECONDS, timeout), limit=BATCH_SIZE
            )
            followups += await run_ends.overdue(
                connection, grace=min(FOLLOWUP_GRACE_SECONDS, timeout), limit=BATCH_SIZE
            )
            for followup in followups:
                await deliveries.enqueue_followup(connection, followup, is_found=True)
        keys = {*found, *to_cancel}
        if keys or lost or followups:
            log.info("sweep_done", runs=len(keys), tasks=len(lost), followups=len(followups))
        return len(keys) + len(lost) + len(followups)

    async def run(self) -> None:
        await run_periodically(
            self._stopping, self._interval, self.run_once, failure_event="sweep_failed"
        )

    def stop(self) -> None:
        self._stopping.set()
