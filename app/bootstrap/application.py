"""Builds every part in order and takes them down in reverse: the one place that knows them all."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from app.agents.catalog import Catalog
from app.agents.registry import AgentRegistry
from app.backends.registry import Backends
from app.bootstrap.agents import known_backends, load_agents, require_working_models
from app.bootstrap.background_tasks import BackgroundTasks, Shutdown
from app.bootstrap.connections import (
    database_options,
    database_url,
    open_transport,
    require_direct_url,
    stream_token_secrets,
)
from app.bootstrap.secrets import redactor_of
from app.clock import SystemClock, new_id
from app.commands.followups.dispatch import run_followup
from app.commands.tickets.signals import run_signal_job
from app.context import ServiceContext, ServiceLimits
from app.domain.ids import RunId, Tenant, WorkerId
from app.domain.runs.rate_limits import RateLimitPolicy
from app.events.fanout.hub import Hub
from app.events.fanout.relay import Hint, Relay, Topic
from app.events.group_commit import GroupCommit
from app.events.transaction import EventTransactions, Publisher
from app.llm.catalog import ModelCatalog
from app.settings import Settings
from app.storage import migrations
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.errors import unusable
from app.storage.runs.runs import RunKey
from app.workers.background_tasks.execution import TaskContext
from app.workers.background_tasks.worker import TaskWorker
from app.workers.delivery_queue import DeliveryQueue, DeliveryResult
from app.workers.execution_context import ExecutionContext
from app.workers.heartbeat import Heartbeat
from app.workers.liveness.loop_watchdog import LoopWatchdog
from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.liveness.poison_guard import PoisonGuard
from app.workers.liveness.running_clock import RunningClock
from app.workers.periodic.remote_polling import RemotePolling
from app.workers.periodic.retention import Retention, RetentionAges
from app.workers.periodic.sweeper import Sweeper
from app.workers.periodic.ticket_expiry import TicketExpiry
from app.workers.worker import Worker

WAIT_FOR_SLOT = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Everything that a running process has."""

    settings: Settings
    database: Database
    place: str
    catalog: Catalog
    models: ModelCatalog
    ctx: ServiceContext
    worker: Worker | None
    heartbeat: Heartbeat
    relay: Relay
    stream_token_secrets: tuple[bytes, ...]
    begin_shutdown: Callable[[], None]
    """Take nothing new and hand over what runs, beside whatever is still to be done; leaving waits for it."""


@asynccontextmanager
async def open_application(settings: Settings) -> AsyncIterator[Application]:
    """Start all parts that the role needs; on leaving, hand over what runs and stop them."""
    require_direct_url(settings)
    async with AsyncExitStack() as stack:
        url, place = await database_url(settings, stack)
        if settings.migrate or (settings.migrate is None and settings.database_url is None):
            await migrations.upgrade(url)
        database = await Database.open(
            url, database_options(settings), listen_url=settings.listen_url
        )
        stack.push_async_callback(database.close)
        await migrations.require_usable(database.pool)
        backends = known_backends()
        stack.push_async_callback(backends.aclose)
        catalog, models = load_agents(settings, backends)
        stack.push_async_callback(models.aclose)
        if settings.role != "api" and settings.agents is not None:
            require_working_models(settings.agents, catalog, models)
        try:
            house = await _build(settings, stack, database, place, catalog, models, backends)
        except DATABASE_UNAVAILABLE as error:
            raise unusable(place, error) from error
        yield house


async def _build(
    settings: Settings,
    stack: AsyncExitStack,
    database: Database,
    place: str,
    catalog: Catalog,
    models: ModelCatalog,
    backends: Backends,
) -> Application:
    me = WorkerId(new_id())
    redact = redactor_of(settings, os.environ)
    clock, hub = SystemClock(), Hub()
    relay = Relay(database, hub, me, await open_transport(settings, database), clock)
    publisher = Publisher(hub, relay)
    outgoing = EventTransactions(database, publisher, clock)
    writer = GroupCommit(database, publisher, outgoing, clock)
    registry = AgentRegistry(catalog, models, database, backends)
    await registry.publish()

    async def announce_cancel(tenant: Tenant, run_id: RunId, reason: str | None) -> None:
        hint = Hint(run_id, f"{tenant}\n{run_id}\n{(reason or '')[:2000]}")
        await relay.send_hints(Topic.CANCEL, [hint])

    ctx = ServiceContext(
        database=database,
        events=outgoing,
        publisher=publisher,
        hub=hub,
        clock=clock,
        agents=registry,
        limits=ServiceLimits(
            queue_per_thread=settings.max_queue_per_thread,
            message_bytes=settings.max_message_bytes,
            signal_seconds=settings.signal_retention,
        ),
        announce_cancel=announce_cancel,
        heartbeat_timeout=settings.heartbeat_timeout,
        backends=backends,
        inbox_poll=settings.log_poll,
        redact=redact,
    )
    bench = ExecutionContext(
        database=database,
        writer=writer,
        agents=registry,
        clock=clock,
        backends=backends,
        redact=redact,
        rate_limits=RateLimitPolicy(
            suspend_after=settings.rate_limit_suspend_after, max_wait=settings.rate_limit_max_wait
        ),
    )
    task_bench = TaskContext(database=database, outgoing=outgoing, agents=registry, redact=redact)
    worker, tasks = _workers(settings, me, bench, task_bench)
    running, outage_allowance = _outages(settings)
    liveness = Heartbeat(
        database,
        worker,
        tasks,
        role=settings.role,
        interval=settings.heartbeat_interval,
        patience=settings.heartbeat_timeout / 3,
        outage_allowance=outage_allowance,
    )
    deadlines = TicketExpiry(ctx, interval=settings.sweep_interval)
    looks = RemotePolling(ctx, interval=settings.sweep_interval)
    pulse = LoopWatchdog(
        database,
        me,
        interval=settings.heartbeat_interval,
        heartbeat_timeout=settings.heartbeat_timeout,
        blocked_timeout=settings.blocked_timeout,
    )
    sweeper = Sweeper(
        database,
        registry,
        interval=settings.sweep_interval,
        heartbeat_timeout=settings.heartbeat_timeout,
        outage_allowance=outage_allowance,
    )
    retention = Retention(database, _ages(settings), interval=settings.retention_interval)
    background = await stack.enter_async_context(BackgroundTasks.open())
    background.start(writer.run())
    background.start(relay.run())
    background.start(relay.listen({Topic.CANCEL: liveness.on_cancel_hint}))
    background.every(settings.log_poll, relay.catch_up)
    background.start(running.run())
    await liveness.beat()
    background.start(liveness.run())
    if settings.role != "api":
        pulse.start()
    rounds = (sweeper, deadlines, looks, retention)
    for each in rounds:
        background.start(each.run())
    background.start(worker.run())
    background.start(tasks.run())

    queue = _queue(settings, ctx, worker, tasks)
    if settings.role != "api":
        background.start(queue.work())

    async def go_to_rest() -> None:
        queue.stop()
        for each in rounds:
            each.stop()
        async with asyncio.TaskGroup() as stopping:
            stopping.create_task(worker.stop(settings.handover_grace))
            stopping.create_task(tasks.stop(settings.handover_grace))
        await pulse.stop()
        await liveness.stop()

    rest = Shutdown(go_to_rest, background)
    stack.push_async_callback(rest.finish)
    return Application(
        settings=settings,
        database=database,
        place=place,
        catalog=catalog,
        models=models,
        ctx=ctx,
        worker=worker if settings.role != "api" else None,
        heartbeat=liveness,
        relay=relay,
        stream_token_secrets=await stream_token_secrets(settings, database),
        begin_shutdown=rest.begin,
    )


def _outages(settings: Settings) -> tuple[RunningClock, OutageAllowance]:
    """What measures outages of the database, and not the time in which this process stood still."""
    loop = asyncio.get_running_loop()
    running = RunningClock(loop.time, interval=settings.heartbeat_interval / 2)
    return running, OutageAllowance(running.seconds, remembered=settings.heartbeat_timeout)


def _workers(
    settings: Settings, me: WorkerId, bench: ExecutionContext, task_bench: TaskContext
) -> tuple[Worker, TaskWorker]:
    """Both halves of this process's worker, which are taken along together when it dies."""
    poison_guard = PoisonGuard()
    worker = Worker(
        bench,
        me,
        poison_guard,
        slots=settings.concurrency,
        heartbeat_timeout=settings.heartbeat_timeout,
    )
    tasks = TaskWorker(
        task_bench,
        me,
        poison_guard,
        slots=settings.task_concurrency,
        heartbeat_timeout=settings.heartbeat_timeout,
    )
    return worker, tasks


def _queue(
    settings: Settings, ctx: ServiceContext, worker: Worker, tasks: TaskWorker
) -> DeliveryQueue:
    """Each delivery to whoever sees to it."""

    async def handle(key: RunKey, dispatch_id: str) -> DeliveryResult:
        if not await worker.reserve_for(key, WAIT_FOR_SLOT):
            return DeliveryResult.BUSY
        await worker.claim_and_launch(key, dispatch_id)
        return DeliveryResult.DONE

    return DeliveryQueue(
        ctx.database,
        handle,
        tasks.handle,
        partial(run_followup, ctx),
        partial(run_signal_job, ctx),
        poll=settings.queue_poll,
        lost_after=settings.heartbeat_timeout,
    )


def _ages(settings: Settings) -> RetentionAges:
    return RetentionAges(
        deltas=settings.delta_retention,
        events=settings.event_retention,
        tasks=settings.task_retention,
        inputs=settings.input_retention,
        notices=settings.notice_retention,
        queue_log=settings.queue_log_retention,
        answers=settings.idempotency_retention,
        signals=settings.signal_retention,
    )
