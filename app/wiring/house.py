"""Builds every part in order and takes them down in reverse: the one place that knows them all."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from app.agents.catalog import Catalog
from app.agents.roster import Roster
from app.backends.registry import Backends
from app.clock import SystemClock, new_id
from app.control.desk import Desk, Limits
from app.control.errands import run_errand
from app.control.signals import run_signal_job
from app.dispatch.bench import Workbench
from app.dispatch.deadlines import Deadlines
from app.dispatch.deafness import Deafness
from app.dispatch.liveness import Liveness
from app.dispatch.pulse import Pulse
from app.dispatch.queue import DeliveryQueue, Handled
from app.dispatch.remote_looks import RemoteLooks
from app.dispatch.retention import Ages, Retention
from app.dispatch.suspicion import Suspicion
from app.dispatch.sweeper import Sweeper
from app.dispatch.task_execution import TaskBench
from app.dispatch.tasks import TaskWorker
from app.dispatch.worker import Worker
from app.domain.ids import RunId, Tenant, WorkerId
from app.domain.rate_limits import RateLimitPolicy
from app.events.hub import Hub
from app.events.outgoing import Outgoing, Publisher
from app.events.relay import Hint, Relay, Topic
from app.events.writer import Writer
from app.llm.catalog import ModelCatalog
from app.settings import Settings
from app.storage import migrations
from app.storage.database import DATABASE_AWAY, Database
from app.storage.outages import unusable
from app.storage.runs import RunKey
from app.wiring.agents import known_backends, load_agents, require_working_models
from app.wiring.background import Background, Rest
from app.wiring.connections import (
    database_options,
    database_url,
    open_wire,
    require_direct_url,
    stream_token_secrets,
)
from app.wiring.secrets import redactor_of

WAIT_FOR_SLOT = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """Everything that a running process has."""

    settings: Settings
    database: Database
    place: str
    catalog: Catalog
    models: ModelCatalog
    desk: Desk
    worker: Worker | None
    liveness: Liveness
    relay: Relay
    stream_token_secrets: tuple[bytes, ...]
    begin_to_rest: Callable[[], None]
    """Take nothing new and hand over what runs, beside whatever is still to be done; leaving waits for it."""


@asynccontextmanager
async def open_house(settings: Settings) -> AsyncIterator[House]:
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
        await migrations.require_usable(database.hot)
        backends = known_backends()
        stack.push_async_callback(backends.aclose)
        catalog, models = load_agents(settings, backends)
        stack.push_async_callback(models.aclose)
        if settings.role != "api" and settings.agents is not None:
            require_working_models(settings.agents, catalog, models)
        try:
            house = await _furnish(settings, stack, database, place, catalog, models, backends)
        except DATABASE_AWAY as error:
            raise unusable(place, error) from error
        yield house


async def _furnish(
    settings: Settings,
    stack: AsyncExitStack,
    database: Database,
    place: str,
    catalog: Catalog,
    models: ModelCatalog,
    backends: Backends,
) -> House:
    me = WorkerId(new_id())
    redact = redactor_of(settings, os.environ)
    clock, hub = SystemClock(), Hub()
    relay = Relay(database, hub, me, await open_wire(settings, database), clock)
    publisher = Publisher(hub, relay)
    outgoing = Outgoing(database, publisher, clock)
    writer = Writer(database, publisher, outgoing, clock)
    roster = Roster(catalog, models, database, backends)
    await roster.publish()

    async def announce_cancel(tenant: Tenant, run_id: RunId, reason: str | None) -> None:
        hint = Hint(run_id, f"{tenant}\n{run_id}\n{(reason or '')[:2000]}")
        await relay.tell(Topic.CANCEL, [hint])

    desk = Desk(
        database=database,
        outgoing=outgoing,
        publisher=publisher,
        hub=hub,
        clock=clock,
        roster=roster,
        limits=Limits(
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
    bench = Workbench(
        database=database,
        writer=writer,
        roster=roster,
        clock=clock,
        backends=backends,
        redact=redact,
        rate_limits=RateLimitPolicy(
            suspend_after=settings.rate_limit_suspend_after, max_wait=settings.rate_limit_max_wait
        ),
    )
    task_bench = TaskBench(database=database, outgoing=outgoing, roster=roster, redact=redact)
    worker, tasks = _workers(settings, me, bench, task_bench)
    deafness = Deafness(asyncio.get_running_loop().time, remembered=settings.heartbeat_timeout)
    liveness = Liveness(
        database,
        worker,
        tasks,
        role=settings.role,
        interval=settings.heartbeat_interval,
        patience=settings.heartbeat_timeout / 3,
        deafness=deafness,
    )
    deadlines = Deadlines(desk, interval=settings.sweep_interval)
    looks = RemoteLooks(desk, interval=settings.sweep_interval)
    pulse = Pulse(
        database,
        me,
        interval=settings.heartbeat_interval,
        blocked_timeout=settings.blocked_timeout,
    )
    sweeper = Sweeper(
        database,
        roster,
        interval=settings.sweep_interval,
        heartbeat_timeout=settings.heartbeat_timeout,
        deafness=deafness,
    )
    retention = Retention(database, _ages(settings), interval=settings.retention_interval)
    background = await stack.enter_async_context(Background.open())
    background.start(writer.run())
    background.start(relay.run())
    background.start(relay.listen({Topic.CANCEL: liveness.heard}))
    background.every(settings.log_poll, relay.catch_up)
    await liveness.beat()
    background.start(liveness.run())
    if settings.role != "api":
        pulse.start()
    rounds = (sweeper, deadlines, looks, retention)
    for each in rounds:
        background.start(each.run())
    background.start(worker.run())
    background.start(tasks.run())

    queue = _queue(settings, desk, worker, tasks)
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

    rest = Rest(go_to_rest, background)
    stack.push_async_callback(rest.come)
    return House(
        settings=settings,
        database=database,
        place=place,
        catalog=catalog,
        models=models,
        desk=desk,
        worker=worker if settings.role != "api" else None,
        liveness=liveness,
        relay=relay,
        stream_token_secrets=await stream_token_secrets(settings, database),
        begin_to_rest=rest.begin,
    )


def _workers(
    settings: Settings, me: WorkerId, bench: Workbench, task_bench: TaskBench
) -> tuple[Worker, TaskWorker]:
    """Both halves of this process's worker, which are taken along together when it dies."""
    suspicion = Suspicion()
    worker = Worker(
        bench,
        me,
        suspicion,
        slots=settings.concurrency,
        heartbeat_timeout=settings.heartbeat_timeout,
    )
    tasks = TaskWorker(
        task_bench,
        me,
        suspicion,
        slots=settings.task_concurrency,
        heartbeat_timeout=settings.heartbeat_timeout,
    )
    return worker, tasks


def _queue(settings: Settings, desk: Desk, worker: Worker, tasks: TaskWorker) -> DeliveryQueue:
    """Each delivery to whoever sees to it."""

    async def handle(key: RunKey, dispatch_id: str) -> Handled:
        if not await worker.reserve_within(WAIT_FOR_SLOT):
            return Handled.BUSY
        await worker.claim_and_launch(key, dispatch_id)
        return Handled.DONE

    return DeliveryQueue(
        desk.database,
        handle,
        tasks.handle,
        partial(run_errand, desk),
        partial(run_signal_job, desk),
        poll=settings.queue_poll,
        lost_after=settings.heartbeat_timeout,
    )


def _ages(settings: Settings) -> Ages:
    return Ages(
        deltas=settings.delta_retention,
        events=settings.event_retention,
        tasks=settings.task_retention,
        inputs=settings.input_retention,
        notices=settings.notice_retention,
        queue_log=settings.queue_log_retention,
        answers=settings.idempotency_retention,
        signals=settings.signal_retention,
    )
