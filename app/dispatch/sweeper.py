"""The sweeper: wakes what ought to be moving and isn't. Every process has one; one at a time works."""

import asyncio

import structlog

from app.agents.roster import Roster
from app.dispatch.deafness import Deafness
from app.dispatch.rounds import in_rounds
from app.domain.errands import Errand
from app.storage import deliveries, overdue_errands, run_ends, runs, tasks
from app.storage.database import Database

AT_ONCE = 100
ERRAND_PATIENCE = 5.0
"""Errands are in the queue's care, which gives them to somebody else once their taker counts as dead; this
is for lost ones. One that only has to wait for its turn is done twice, and that is all."""

log = structlog.get_logger(__name__)


class Sweeper:
    def __init__(
        self,
        database: Database,
        roster: Roster,
        *,
        interval: float,
        heartbeat_timeout: float,
        deafness: Deafness,
    ) -> None:
        self._database = database
        self._roster = roster
        self._interval = interval
        self._heartbeat_timeout = heartbeat_timeout
        self._deafness = deafness
        self._stopping = asyncio.Event()

    async def sweep(self) -> int:
        """Enqueue every run and task that has lost its worker, its delivery or its reason to wait."""
        patience = self._heartbeat_timeout + self._deafness.seconds()
        async with self._database.transaction() as connection:
            if not await runs.may_sweep(connection):
                return 0
            found = await runs.orphans(
                connection,
                heartbeat_timeout=patience,
                grace=2 * self._interval,
                limit=AT_ONCE,
            )
            found += await runs.unheard(connection, grace=2 * self._interval, limit=AT_ONCE)
            found += await runs.unread(connection, grace=2 * self._interval, limit=AT_ONCE)
            found += await runs.resumed(connection, grace=2 * self._interval, limit=AT_ONCE)
            found += await runs.past_rate_limit(connection, grace=2 * self._interval, limit=AT_ONCE)
            found += await runs.waiting_for_version(
                connection, self._roster.known_versions(), AT_ONCE
            )
            for key in found:
                await deliveries.enqueue(connection, key)
            lost = await tasks.orphans(
                connection,
                heartbeat_timeout=patience,
                grace=2 * self._interval,
                limit=AT_ONCE,
            )
            for task in lost:
                await deliveries.enqueue_task(connection, task)
            errands: list[Errand] = []
            errands += await overdue_errands.of_children(
                connection, grace=min(ERRAND_PATIENCE, patience), limit=AT_ONCE
            )
            errands += await run_ends.overdue(
                connection, grace=min(ERRAND_PATIENCE, patience), limit=AT_ONCE
            )
            for errand in errands:
                await deliveries.enqueue_errand(connection, errand, is_found=True)
        if found or lost or errands:
            log.info("swept", runs=len(found), tasks=len(lost), errands=len(errands))
        return len(found) + len(lost) + len(errands)

    async def run(self) -> None:
        await in_rounds(self._stopping, self._interval, self.sweep, missed="sweep_missed")

    def stop(self) -> None:
        self._stopping.set()
