"""The delivery queue: hands each pgqueuer job to its handler, and restarts pgqueuer after an outage."""

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
from app.workers.periodic.loop import wait_for_next
from app.workers.queue_writes import OutageTolerantQueries

BATCH_SIZE = 5
RESTART_INTERVAL_SECONDS = 0.5
REDELIVERY_SECONDS = 0.25
"""Delay of a delivery that this process can't handle now."""
STOP_TIMEOUT_SECONDS = 3.0
RESTARTABLE_ERRORS: tuple[type[Exception], ...] = (*DATABASE_UNAVAILABLE, PgqException)

log = structlog.get_logger(__name__)


class DeliveryResult(Enum):
    DONE = auto()
    BUSY = auto()
    """No free slot: the delivery goes back into the queue, for any worker."""


HandleRun = Callable[[RunKey, str], Awaitable[DeliveryResult]]
HandleTask = Callable[[TaskKey], Awaitable[DeliveryResult]]
HandleSignalJob = Callable[[SignalJob], Awaitable[None]]
HandleFollowup = Callable[[Followup, JobInfo], Awaitable[RetryAfter | None]]
"""Returns the delay before the next try, or None when the follow-up is done."""


class DeliveryQueue:
    def __init__(
        self,
        database: Database,
        handle_run: HandleRun,
        handle_task: HandleTask,
        handle_followup: HandleFollowup,
        handle_signal_job: HandleSignalJob,
        *,
        poll: float,
        lost_after: float,
    ) -> None:
        self._database = database
        self._handle_run = handle_run
        self._handle_task = handle_task
        self._handle_followup = handle_followup
        self._handle_signal_job = handle_signal_job
        self._poll = poll
        # pgqueuer gives a job whose worker is silent for so long to another one.
        self._lost_after = timedelta(seconds=lost_after)
        self._manager: QueueManager | None = None
        self._pool: QueuePool | None = None
        self._stopping = asyncio.Event()

    async def work(self) -> None:
        """Hand each delivery to its handler until stopped; restart pgqueuer after an outage."""
        while not self._stopping.is_set():
            try:
                await self._work_until_broken()
            except* RESTARTABLE_ERRORS as errors:
                log.debug("queue_restarted", errors=[repr(e)[:200] for e in errors.exceptions])
            await wait_for_next(self._stopping, RESTART_INTERVAL_SECONDS)

    def stop(self) -> None:
        """Take no more deliveries. Those in a handler are completed if the database answers in time."""
        self._stopping.set()
        if self._manager is not None:
            self._manager.shutdown.set()
        asyncio.get_running_loop().call_later(STOP_TIMEOUT_SECONDS, self._close_connections)

    def _close_connections(self) -> None:
        """pgqueuer waits for its last statements without a time-out: end their connections."""
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
            manager.entrypoint(FOLLOWUP_ENTRYPOINT, accepts_context=False)(self._received_followup)
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
        await _retry_unless_done(job, self._handle_run(delivered(job.payload), str(job.id)))

    async def _received_task(self, job: Job) -> None:
        await _retry_unless_done(job, self._handle_task(delivered_task(job.payload)))

    async def _received_followup(self, job: Job) -> None:
        """Run a follow-up. One that has to wait goes back into the queue, so it blocks no other."""
        try:
            retry_after = await self._handle_followup(
                delivered_followup(job.payload), self._job_info(job)
            )
        except DATABASE_UNAVAILABLE as error:
            raise _retry_after_outage(job, error) from error
        if retry_after is not None:
            raise _retry_after(retry_after.seconds, "not done yet")

    async def _received_signal_job(self, job: Job) -> None:
        """Retried until it succeeds: a signal that was answered with 200 must not be lost."""
        try:
            await self._handle_signal_job(delivered_signal_job(job.payload))
        except DATABASE_UNAVAILABLE as error:
            raise _retry_after_outage(job, error) from error
        except Exception as error:
            log.exception("signal_delivery_failed", tries=job.attempts + 1)
            raise _retry_after(retry_delay(job.attempts + 1), "failed") from error

    def _job_info(self, job: Job) -> JobInfo:
        waited = datetime.now(UTC) - job.execute_after  # noqa: TID251  the queue's own clock
        return JobInfo(polls=job.attempts, is_late=waited > self._lost_after)


async def _retry_unless_done(job: Job, handling: Awaitable[DeliveryResult]) -> None:
    """Retry a delivery that was not handled: pgqueuer drops a job whose handler raises."""
    try:
        if await handling is DeliveryResult.DONE:
            return
    except DATABASE_UNAVAILABLE as error:
        raise _retry_after_outage(job, error) from error
    raise _retry_after(REDELIVERY_SECONDS, "no free slot")


def _retry_after_outage(job: Job, error: Exception) -> RetryRequested:
    reason = reason_of(error).value
    log.warning("delivery_postponed", kind=job.entrypoint, reason=reason, tries=job.attempts + 1)
    return _retry_after(REDELIVERY_SECONDS, f"database unavailable: {reason}")


def _retry_after(seconds: float, reason: str) -> RetryRequested:
    return RetryRequested(delay=timedelta(seconds=seconds), reason=reason)
