"""The queue's own writes during a database outage: repeated, and logged in one line instead of a traceback.

The queue library deletes a delivery whose retry it cannot write, and logs each failed flush with a traceback.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.domain.models import Job, TracebackRecord
from pgqueuer.domain.types import JOB_STATUS, JobId

from app.clock import sleep
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.postgres.errors import reason_of

RETRY_INTERVAL_SECONDS = 0.25

log = structlog.get_logger(__name__)


@dataclass
class OutageTolerantQueries(Queries):
    """Repeats a write for `lost_after` seconds; then the queue gives the delivery to another process."""

    lost_after: float = 10.0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def retry_job(
        self, job: Job, delay: timedelta, traceback_record: TracebackRecord | None
    ) -> None:
        async def write() -> None:
            await super(OutageTolerantQueries, self).retry_job(job, delay, traceback_record)

        await self._repeat(write, "delivery_retry_not_written", deliveries=1)

    async def log_jobs(
        self, job_status: list[tuple[Job, JOB_STATUS, TracebackRecord | None]]
    ) -> None:
        async def write() -> None:
            await super(OutageTolerantQueries, self).log_jobs(job_status)

        await self._repeat(write, "delivery_completion_not_written", deliveries=len(job_status))

    async def update_heartbeat(self, job_ids: list[JobId]) -> None:
        """Written once: the next heartbeat of the same deliveries is soon due."""
        try:
            await super().update_heartbeat(job_ids)
        except DATABASE_UNAVAILABLE as error:
            log.debug("delivery_heartbeat_missed", reason=reason_of(error).value)

    async def _repeat(
        self, write: Callable[[], Awaitable[None]], event: str, *, deliveries: int
    ) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + self.lost_after
        while True:
            try:
                await write()
                return
            except DATABASE_UNAVAILABLE as error:
                if self.stopping.is_set() or clock() >= until:
                    reason = reason_of(error).value
                    log.warning(event, reason=reason, deliveries=deliveries)
                    return
            await sleep(RETRY_INTERVAL_SECONDS)
