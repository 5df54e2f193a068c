"""The sweeper: wakes what ought to be moving and isn't. Every process has one; one at a time works."""

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
"""Errands are in the queue's care, which gives them to somebody else once their taker counts as dead; this
is for lost ones. One that only has to wait for its turn is done twice, and that is all."""

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
        self._roster = registry
        self._interval = interval
        self._heartbeat_timeout = heartbeat_timeout
        self._deafness = outage_allowance
        self._stopping = asyncio.Event()

    async def run_once(self) -> int:
        """Enqueue every run and task that has lost its worker, its delivery or its reason to wait."""
        patience = self._heartbeat_timeout + self._deafness.seconds()
        async with self._database.transaction() as connection:
            if not await runs.may_sweep(connection):
                return 0
            found = await runs.without_owner(
                connection,
                heartbeat_timeout=patience,
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
                connection, self._roster.known_versions(), BATCH_SIZE
            )
            for key in found:
                await deliveries.enqueue(connection, key)
            to_cancel = await cancel_requests.unattended(
                connection,
                heartbeat_timeout=patience,
                grace=2 * self._interval,
                limit=BATCH_SIZE,
            )
            for key in to_cancel:
                await deliveries.enqueue(connection, key, is_cancel=True)
            lost = await background_tasks.without_owner(
                connection,
                heartbeat_timeout=patience,
                grace=2 * self._interval,
                limit=BATCH_SIZE,
            )
            for task in lost:
                await deliveries.enqueue_task(connection, task)
            followups: list[Followup] = []
            followups += await lost_followups.of_children(
                connection, grace=min(FOLLOWUP_GRACE_SECONDS, patience), limit=BATCH_SIZE
            )
            followups += await run_ends.overdue(
                connection, grace=min(FOLLOWUP_GRACE_SECONDS, patience), limit=BATCH_SIZE
            )
            for followup in followups:
                await deliveries.enqueue_followup(connection, followup, is_found=True)
        keys = {*found, *to_cancel}
        if keys or lost or followups:
            log.info("swept", runs=len(keys), tasks=len(lost), followups=len(followups))
        return len(keys) + len(lost) + len(followups)

    async def run(self) -> None:
        await run_periodically(self._stopping, self._interval, self.run_once, missed="sweep_missed")

    def stop(self) -> None:
        self._stopping.set()
