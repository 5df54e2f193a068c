"""The queue of deliveries: taken by this process while it works, under a loop that outlives outages."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

import structlog
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.errors import PgqException, RetryRequested
from pgqueuer.domain.models import Job

from app import telemetry
from app.domain.errands import Errand
from app.storage.database import DATABASE_AWAY, Database
from app.storage.deliveries import (
    ENTRYPOINT,
    ERRAND_ENTRYPOINT,
    TASK_ENTRYPOINT,
    delivered,
    delivered_errand,
    delivered_task,
    queue_queries,
)
from app.storage.runs import RunKey
from app.storage.tasks import TaskKey

BATCH = 5
RESTART = 0.5
_MENDS_BY_RESTARTING: tuple[type[Exception], ...] = (*DATABASE_AWAY, PgqException)

log = structlog.get_logger(__name__)


class Handled(Enum):
    DONE = auto()
    BUSY = auto()
    """No room here: let another worker have it, or this one a little later."""


Handle = Callable[[RunKey, str], Awaitable[Handled]]
HandleTask = Callable[[TaskKey], Awaitable[Handled]]
HandleErrand = Callable[[Errand], Awaitable[Handled]]


class DeliveryQueue:
    def __init__(
        self,
        database: Database,
        handle: Handle,
        handle_task: HandleTask,
        handle_errand: HandleErrand,
        *,
        poll: float,
    ) -> None:
        self._database = database
        self._handle = handle
        self._handle_task = handle_task
        self._handle_errand = handle_errand
        self._poll = poll
        self._manager: QueueManager | None = None
        self._stopping = asyncio.Event()

    async def work(self) -> None:
        """Hand each delivery to the handler, until stopped; an outage only interrupts."""
        while not self._stopping.is_set():
            try:
                await self._work_until_broken()
            except* _MENDS_BY_RESTARTING as errors:
                log.warning("queue_restarted", errors=[repr(e)[:200] for e in errors.exceptions])
            if not self._stopping.is_set():
                await self._pause()

    def stop(self) -> None:
        """Take no more deliveries; those being handled are seen through."""
        self._stopping.set()
        if self._manager is not None:
            self._manager.shutdown.set()

    async def _work_until_broken(self) -> None:
        async with self._database.queue_pool() as pool:
            manager = QueueManager(queue_queries(AsyncpgPoolDriver(pool)))
            manager.entrypoint(ENTRYPOINT, accepts_context=False)(self._received)
            manager.entrypoint(TASK_ENTRYPOINT, accepts_context=False)(self._received_task)
            manager.entrypoint(ERRAND_ENTRYPOINT, accepts_context=False)(self._received_errand)
            self._manager = manager
            if self._stopping.is_set():
                return
            await manager.run(
                dequeue_timeout=timedelta(seconds=self._poll),
                batch_size=BATCH,
                max_concurrent_tasks=4 * BATCH,
                shutdown_on_listener_failure=True,
                heartbeat_timeout=timedelta(seconds=10),
            )

    async def _received(self, job: Job) -> None:
        delay = (datetime.now(UTC) - job.created).total_seconds()  # noqa: TID251  the queue's own clock
        telemetry.queue_delay.observe(max(0.0, delay))
        if await self._handle(delivered(job.payload), str(job.id)) is Handled.BUSY:
            raise _no_room()

    async def _received_task(self, job: Job) -> None:
        if await self._handle_task(delivered_task(job.payload)) is Handled.BUSY:
            raise _no_room()

    async def _received_errand(self, job: Job) -> None:
        try:
            handled = await self._handle_errand(delivered_errand(job.payload))
        except DATABASE_AWAY as error:
            raise RetryRequested(delay=timedelta(seconds=1), reason="database away") from error
        if handled is Handled.BUSY:
            raise _no_room()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(RESTART):
                await self._stopping.wait()
        except TimeoutError:
            return


def _no_room() -> RetryRequested:
    return RetryRequested(delay=timedelta(milliseconds=250), reason="no free slot")
