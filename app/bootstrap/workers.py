"""The workers, the periodic jobs and the delivery queue of a process: built, started and stopped."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from app.bootstrap.background_tasks import BackgroundTasks
from app.commands.followups.dispatch import run_followup
from app.commands.tickets.deliver_signal import run_signal_job
from app.context import ServiceContext
from app.domain.ids import WorkerId
from app.settings import Settings
from app.workers.background_tasks.execution import TaskContext
from app.workers.background_tasks.worker import TaskWorker
from app.workers.delivery_queue import DeliveryQueue
from app.workers.execution_context import ExecutionContext
from app.workers.heartbeat import Heartbeat
from app.workers.liveness.loop_watchdog import LoopWatchdog
from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.liveness.poison_guard import PoisonGuard
from app.workers.liveness.running_clock import RunningClock
from app.workers.periodic.file_object_deletion import FileObjectDeletion
from app.workers.periodic.loop import PeriodicJob
from app.workers.periodic.remote_polling import RemotePolling
from app.workers.periodic.retention import Retention, RetentionAges
from app.workers.periodic.sweeper import Sweeper
from app.workers.periodic.table_statistics import TableStatistics
from app.workers.periodic.ticket_expiry import TicketExpiry
from app.workers.worker import Worker


class Workers(Struct, frozen=True, kw_only=True):
    """All that executes runs in a process, and keeps them moving."""

    worker: Worker
    tasks: TaskWorker
    running_clock: RunningClock
    heartbeat: Heartbeat
    watchdog: LoopWatchdog
    queue: DeliveryQueue
    periodic: Sequence[PeriodicJob]
    executes: bool
    """False in the `api` role: it takes no deliveries and starts no run."""
    handover_grace: float

    async def start(self, background: BackgroundTasks) -> None:
        """Start each part; the first heartbeat is written before a run can be claimed."""
        background.start(self.running_clock.run())
        await self.heartbeat.write()
        background.start(self.heartbeat.run())
        for job in self.periodic:
            background.start(job.run())
        background.start(self.worker.run())
        background.start(self.tasks.run())
        if self.executes:
            self.watchdog.start()
            background.start(self.queue.work())

    async def stop(self) -> None:
        """Take no more work, hand over what executes, then delete the worker's row."""
        self.queue.stop()
        for job in self.periodic:
            job.stop()
        async with asyncio.TaskGroup() as stopping:
            stopping.create_task(self.worker.stop(self.handover_grace))
            stopping.create_task(self.tasks.stop(self.handover_grace))
        await self.watchdog.stop()
        await self.heartbeat.stop()


def build_workers(
    settings: Settings,
    worker_id: WorkerId,
    ctx: ServiceContext,
    execution: ExecutionContext,
    task_execution: TaskContext,
    on_others: Callable[[bool], None],
) -> Workers:
    database = ctx.database
    poison_guard = PoisonGuard()
    worker = Worker(
        execution,
        worker_id,
        poison_guard,
        slots=settings.concurrency,
        heartbeat_timeout=settings.heartbeat_timeout,
    )
    tasks = TaskWorker(
        task_execution,
        worker_id,
        poison_guard,
        slots=settings.task_concurrency,
        heartbeat_timeout=settings.heartbeat_timeout,
    )
    running_clock = RunningClock(
        asyncio.get_running_loop().time, interval=settings.heartbeat_interval / 2
    )
    outage_allowance = OutageAllowance(running_clock.seconds, remembered=settings.heartbeat_timeout)
    return Workers(
        worker=worker,
        tasks=tasks,
        running_clock=running_clock,
        heartbeat=Heartbeat(
            database,
            worker,
            tasks,
            role=settings.role,
            interval=settings.heartbeat_interval,
            timeout=settings.heartbeat_timeout / 3,
            outage_allowance=outage_allowance,
            on_others=on_others,
        ),
        watchdog=LoopWatchdog(
            database,
            worker_id,
            interval=settings.heartbeat_interval,
            heartbeat_timeout=settings.heartbeat_timeout,
            blocked_timeout=settings.blocked_timeout,
        ),
        queue=DeliveryQueue(
            database,
            worker.handle,
            tasks.handle,
            partial(run_followup, ctx),
            partial(run_signal_job, ctx),
            poll=settings.queue_poll,
            lost_after=settings.heartbeat_timeout,
        ),
        periodic=(
            Sweeper(
                database,
                ctx.agents,
                interval=settings.sweep_interval,
                heartbeat_timeout=settings.heartbeat_timeout,
                outage_allowance=outage_allowance,
            ),
            TicketExpiry(ctx, interval=settings.sweep_interval),
            RemotePolling(ctx, interval=settings.sweep_interval),
            TableStatistics(database, interval=settings.sweep_interval),
            Retention(database, _retention_ages(settings), interval=settings.retention_interval),
            *_file_object_deletion(settings, ctx),
        ),
        executes=settings.role != "api",
        handover_grace=settings.handover_grace,
    )


def _file_object_deletion(settings: Settings, ctx: ServiceContext) -> Sequence[PeriodicJob]:
    """The job that deletes objects in S3, if files are there."""
    if ctx.chunks is None:
        return ()
    return (FileObjectDeletion(ctx.database, ctx.chunks, interval=settings.retention_interval),)


def _retention_ages(settings: Settings) -> RetentionAges:
    return RetentionAges(
        deltas=settings.delta_retention,
        events=settings.event_retention,
        tasks=settings.task_retention,
        inputs=settings.input_retention,
        notices=settings.notice_retention,
        queue_log=settings.queue_log_retention,
        answers=settings.idempotency_retention,
        signals=settings.signal_retention,
        usage=settings.usage_retention,
        files=settings.file_retention,
        memories=settings.memory_retention,
    )


@dataclass(slots=True)
class Shutdown:
    """Stops the workers once: on a signal while requests are still served, or on closing."""

    workers: Workers
    background: BackgroundTasks
    _stopping: "asyncio.Task[Exception | None] | None" = field(default=None, init=False)

    def begin(self) -> None:
        """Stop the workers in the background."""
        if self._stopping is None:
            self._stopping = self.background.finish(self._stop())

    async def finish(self) -> None:
        """Wait until the workers have stopped, and raise the error of `begin`, if any."""
        if self._stopping is None:
            await self.workers.stop()
            return
        await asyncio.wait({self._stopping})
        if not self._stopping.cancelled() and (error := self._stopping.result()) is not None:
            raise error

    async def _stop(self) -> Exception | None:
        try:
            await self.workers.stop()
        except Exception as error:  # noqa: BLE001  `finish` raises it
            return error
        return None
