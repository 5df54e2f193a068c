"""The queue of deliveries: taken by this process while it works, under a loop that outlives outages."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from functools import partial

import structlog
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.errors import PgqException, RetryRequested
from pgqueuer.domain.models import Job

from app import telemetry
from app.domain.children.background_tasks import TaskKey
from app.domain.children.followups import Followup, JobInfo, RetryAfter, retry_delay
from app.domain.signals import SignalJob
from app.storage.postgres.connect import QueuePool
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.errors import reason_of
from app.storage.queue.deliveries import (
    ENTRYPOINT,
    FOLLOWUP_ENTRYPOINT,
    SIGNAL_ENTRYPOINT,
    TASK_ENTRYPOINT,
    delivered,
    delivered_followup,
    delivered_signal_job,
    delivered_task,
    due_at_of,
    queue_queries,
)
from app.storage.runs.runs import RunKey
from app.workers.queue_writes import OutageTolerantQueries

BATCH_SIZE = 5
RESTART_INTERVAL_SECONDS = 0.5
REDELIVERY_SECONDS = 0.25
"""Seconds until a delivery is tried again that can't be dealt with now."""
STOP_TIMEOUT_SECONDS = 3.0
_MENDS_BY_RESTARTING: tuple[type[Exception], ...] = (*DATABASE_UNAVAILABLE, PgqException)

log = structlog.get_logger(__name__)


class DeliveryResult(Enum):
    DONE = auto()
    BUSY = auto()
    """No room here: let another worker have it, or this one a little later."""


Handle = Callable[[RunKey, str], Awaitable[DeliveryResult]]
HandleTask = Callable[[TaskKey], Awaitable[DeliveryResult]]
HandleSignalJob = Callable[[SignalJob], Awaitable[None]]
HandleFollowup = Callable[[Followup, JobInfo], Awaitable[RetryAfter | None]]
"""Says when an errand is to be looked at again, unless that is over."""


class DeliveryQueue:
    def __init__(
        self,
        database: Database,
        handle: Handle,
        handle_task: HandleTask,
        handle_errand: HandleFollowup,
        handle_signal_job: HandleSignalJob,
        *,
        poll: float,
        lost_after: float,
    ) -> None:
        self._database = database
        self._handle = handle
        self._handle_task = handle_task
        self._handle_errand = handle_errand
        self._handle_signal_job = handle_signal_job
        self._poll = poll
        # Until then the queue keeps the delivery's key, and a second one for the same run is none.
        self._lost_after = timedelta(seconds=lost_after)
        self._manager: QueueManager | None = None
        self._pool: QueuePool | None = None
        self._stopping = asyncio.Event()

    async def work(self) -> None:
        """Hand each delivery to the handler, until stopped; an outage only interrupts."""
        while not self._stopping.is_set():
            try:
                await self._work_until_broken()
            except* _MENDS_BY_RESTARTING as errors:
                log.debug("queue_restarted", errors=[repr(e)[:200] for e in errors.exceptions])
            if not self._stopping.is_set():
                await self._pause()

    def stop(self) -> None:
        """Take no more deliveries; those being handled are seen through, if the database answers."""
        self._stopping.set()
        if self._manager is not None:
            self._manager.shutdown.set()
        asyncio.get_running_loop().call_later(STOP_TIMEOUT_SECONDS, self._cut)

    def _cut(self) -> None:
        """The queue waits for its last statements however long they take: end them."""
        if self._pool is not None:
            self._pool.terminate()

    async def _work_until_broken(self) -> None:
        async with self._database.queue_pool() as self._pool:
            queries = partial(
                OutageTolerantQueries,
                lost_after=self._lost_after.total_seconds(),
                stopping=self._stopping,
            )
            manager = QueueManager(queue_queries(AsyncpgPoolDriver(self._pool), queries))
            manager.entrypoint(ENTRYPOINT, accepts_context=False)(self._received)
            manager.entrypoint(TASK_ENTRYPOINT, accepts_context=False)(self._received_task)
            manager.entrypoint(FOLLOWUP_ENTRYPOINT, accepts_context=False)(self._received_errand)
            manager.entrypoint(SIGNAL_ENTRYPOINT, accepts_context=False)(self._received_signal_job)
            self._manager = manager
            if self._stopping.is_set():
                return
            await manager.run(
                dequeue_timeout=timedelta(seconds=self._poll),
                batch_size=BATCH_SIZE,
                max_concurrent_tasks=4 * BATCH_SIZE,
                shutdown_on_listener_failure=True,
                heartbeat_timeout=self._lost_after,
            )

    async def _received(self, job: Job) -> None:
        due_at = due_at_of(job.payload) or job.created
        delay = (datetime.now(UTC) - due_at).total_seconds()  # noqa: TID251  the queue's own clock
        telemetry.queue_delay.observe(max(0.0, delay))
        await _handled(job, self._handle(delivered(job.payload), str(job.id)))

    async def _received_task(self, job: Job) -> None:
        await _handled(job, self._handle_task(delivered_task(job.payload)))

    async def _received_errand(self, job: Job) -> None:
        """No errand keeps another one waiting: one that has to wait itself is put back."""
        try:
            later = await self._handle_errand(delivered_followup(job.payload), self._asked(job))
        except DATABASE_UNAVAILABLE as error:
            raise _when_database_is_back(job, error) from error
        if later is not None:
            raise _again(later.seconds, "not done yet")

    async def _received_signal_job(self, job: Job) -> None:
        """Tried until it is done: a signal that was answered with 200 must not be lost."""
        try:
            await self._handle_signal_job(delivered_signal_job(job.payload))
        except DATABASE_UNAVAILABLE as error:
            raise _when_database_is_back(job, error) from error
        except Exception as error:
            log.exception("signal_job_failed", tries=job.attempts + 1)
            raise _again(retry_delay(job.attempts + 1), "failed") from error

    def _asked(self, job: Job) -> JobInfo:
        waited = datetime.now(UTC) - job.execute_after  # noqa: TID251  the queue's own clock
        return JobInfo(polls=job.attempts, is_late=waited > self._lost_after)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(RESTART_INTERVAL_SECONDS):
                await self._stopping.wait()
        except TimeoutError:
            return


async def _handled(job: Job, handling: Awaitable[DeliveryResult]) -> None:
    """A delivery that can't be dealt with now stays; the queue would drop what it fails over."""
    try:
        if await handling is DeliveryResult.DONE:
            return
    except DATABASE_UNAVAILABLE as error:
        raise _when_database_is_back(job, error) from error
    raise _again(REDELIVERY_SECONDS, "no free slot")


def _when_database_is_back(job: Job, error: Exception) -> RetryRequested:
    reason = reason_of(error).value
    log.warning("delivery_postponed", kind=job.entrypoint, reason=reason, tries=job.attempts + 1)
    return _again(REDELIVERY_SECONDS, f"database away: {reason}")


def _again(seconds: float, reason: str) -> RetryRequested:
    return RetryRequested(delay=timedelta(seconds=seconds), reason=reason)
