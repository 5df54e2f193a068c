"""Builds every part in order and takes them down in reverse: the one place that knows them all."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import structlog

from app.agents.catalog import Catalog, load_catalog
from app.agents.demo import demo_catalog
from app.agents.endpoints import Endpoints
from app.agents.resolve import models_of
from app.agents.roster import Roster
from app.backends.a2a import A2AFactory
from app.backends.holdfast import HoldfastFactory
from app.backends.registry import Backends
from app.clock import SystemClock, new_id
from app.control.desk import Desk, Limits
from app.control.errands import run_errand
from app.dispatch.bench import Workbench
from app.dispatch.deadlines import Deadlines
from app.dispatch.deafness import Deafness
from app.dispatch.liveness import Liveness
from app.dispatch.pulse import Pulse
from app.dispatch.queue import DeliveryQueue, Handled
from app.dispatch.remote_looks import RemoteLooks
from app.dispatch.retention import Ages, Retention
from app.dispatch.sweeper import Sweeper
from app.dispatch.task_execution import TaskBench
from app.dispatch.tasks import TaskWorker
from app.dispatch.worker import Worker
from app.domain.errands import Errand
from app.domain.errors import ConfigurationError
from app.domain.ids import RunId, Tenant, WorkerId
from app.events.hub import Hub
from app.events.notify_wire import NotifyWire
from app.events.outgoing import Outgoing, Publisher
from app.events.relay import Hint, Relay, Topic, Wire
from app.events.writer import Writer
from app.llm.catalog import ModelCatalog
from app.llm.specs import specs_from_environment
from app.settings import Settings
from app.storage import migrations
from app.storage.database import DATABASE_AWAY, Database, DatabaseOptions, place_of
from app.storage.embedded import EmbeddedPostgres, default_data_dir
from app.storage.notifications import installation
from app.storage.outages import unusable
from app.storage.runs import RunKey

T = TypeVar("T")
WAIT_FOR_SLOT = 1.0

log = structlog.get_logger(__name__)


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
    begin_to_rest: Callable[[], None]
    """Take nothing new and hand over what runs, beside whatever is still to be done; leaving waits for it."""


@asynccontextmanager
async def open_house(settings: Settings) -> AsyncIterator[House]:
    """Start all parts that the role needs; on leaving, hand over what runs and stop them."""
    require_direct_url(settings)
    async with AsyncExitStack() as stack:
        url, place = await _database_url(settings, stack)
        if settings.migrate or (settings.migrate is None and settings.database_url is None):
            await migrations.upgrade(url)
        database = await Database.open(url, _options(settings), listen_url=settings.listen_url)
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


def known_backends() -> Backends:
    """Who can execute agents that don't live here, by the name that an endpoint calls them."""
    return Backends({"a2a": A2AFactory(), "holdfast": HoldfastFactory()}, os.environ)


def load_agents(
    settings: Settings, endpoints: Endpoints | None = None
) -> tuple[Catalog, ModelCatalog]:
    """The agents that the settings name, and the models behind them."""
    defaults = specs_from_environment(os.environ)
    catalog = (
        demo_catalog(default_models=defaults)
        if settings.agents is None
        else load_catalog(
            settings.agents, default_models=defaults, endpoints=endpoints or known_backends()
        )
    )
    return catalog, ModelCatalog(list(catalog.models.values()), os.environ)


def require_working_models(file: Path, catalog: Catalog, models: ModelCatalog) -> None:
    """Who wrote an agent down wants it to run: a model that can't work is found before the first run."""
    problems = [
        f"{file}: agents.{spec.id}: {problem}; an agent of your own file must be able to run"
        for spec in catalog.agents.values()
        for model in models_of(spec, catalog)
        if (problem := models.problem(model)) is not None
    ]
    if problems:
        raise ConfigurationError("\n".join(problems))


async def _database_url(settings: Settings, stack: AsyncExitStack) -> tuple[str, str]:
    if settings.database_url is not None:
        return settings.database_url, f"Postgres at {place_of(settings.database_url)}"
    data_dir = settings.data_dir or default_data_dir()
    embedded = await asyncio.to_thread(EmbeddedPostgres.start, data_dir)
    stack.push_async_callback(asyncio.to_thread, embedded.stop)
    return embedded.url, f"{data_dir} (embedded Postgres)"


def require_direct_url(settings: Settings) -> None:
    """Nobody hears a LISTEN through a pooler that changes the connection with every transaction."""
    if settings.pgbouncer and settings.listen_url is None:
        raise ConfigurationError(
            "HOLDFAST_PGBOUNCER needs HOLDFAST_LISTEN_URL: the address of the server itself, for LISTEN."
        )


def _options(settings: Settings) -> DatabaseOptions:
    return DatabaseOptions(
        pool_size=settings.pool_size,
        hot_pool_size=settings.hot_pool_size,
        pgbouncer=settings.pgbouncer,
        pool_timeout=settings.pool_timeout,
        statement_timeout=settings.statement_timeout,
        lock_timeout=settings.lock_timeout,
        connection_lifetime=settings.connection_lifetime,
        tcp_keepalive=settings.tcp_keepalive,
    )


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
    clock, hub = SystemClock(), Hub()
    relay = Relay(database, hub, me, await open_wire(settings, database))
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
            queue_per_thread=settings.max_queue_per_thread, message_bytes=settings.max_message_bytes
        ),
        announce_cancel=announce_cancel,
        heartbeat_timeout=settings.heartbeat_timeout,
        backends=backends,
        inbox_poll=settings.log_poll,
    )
    bench = Workbench(
        database=database, writer=writer, roster=roster, clock=clock, backends=backends
    )
    worker = Worker(
        bench,
        me,
        slots=settings.concurrency,
        heartbeat_timeout=settings.heartbeat_timeout,
    )
    tasks = TaskWorker(
        TaskBench(database=database, outgoing=outgoing, roster=roster),
        me,
        slots=settings.task_concurrency,
        heartbeat_timeout=settings.heartbeat_timeout,
    )
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
    background = await stack.enter_async_context(_Background.open())
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

    rest = _Rest(go_to_rest, background)
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
        begin_to_rest=rest.begin,
    )


def _queue(settings: Settings, desk: Desk, worker: Worker, tasks: TaskWorker) -> DeliveryQueue:
    """Each delivery to whoever sees to it."""

    async def handle(key: RunKey, dispatch_id: str) -> Handled:
        if not await worker.reserve_within(WAIT_FOR_SLOT):
            return Handled.BUSY
        await worker.claim_and_launch(key, dispatch_id)
        return Handled.DONE

    async def handle_errand(errand: Errand) -> Handled:
        return Handled.DONE if await run_errand(desk, errand) else Handled.BUSY

    return DeliveryQueue(
        desk.database,
        handle,
        tasks.handle,
        handle_errand,
        poll=settings.queue_poll,
        lost_after=settings.heartbeat_timeout,
    )


async def open_wire(settings: Settings, database: Database) -> Wire:
    """What carries hints between the processes on this database."""
    if settings.nats_url is None:
        return NotifyWire(database)
    wire: Wire = nats().NatsWire(settings.nats_url, await installation(database.hot))
    return wire


def nats() -> ModuleType:
    """The module that knows NATS, whose library is an extra."""
    try:
        return import_module("app.events.nats_wire")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "NATS_URL is set, and the library for NATS isn't installed. Install it with "
            "`pip install 'holdfast[nats]'`, or unset NATS_URL: Postgres carries the hints then."
        ) from error


def _ages(settings: Settings) -> Ages:
    return Ages(
        deltas=settings.delta_retention,
        events=settings.event_retention,
        tasks=settings.task_retention,
        inputs=settings.input_retention,
        notices=settings.notice_retention,
        queue_log=settings.queue_log_retention,
        answers=settings.idempotency_retention,
    )


class _Rest:
    """The way to rest: gone once, from when somebody wishes it, or on leaving."""

    def __init__(
        self, go: Callable[[], Coroutine[None, None, None]], beside: "_Background"
    ) -> None:
        self._go = go
        self._beside = beside
        self._way: asyncio.Task[Exception | None] | None = None

    def begin(self) -> None:
        if self._way is None:
            self._way = self._beside.finish(self._walk())

    async def come(self) -> None:
        if self._way is None:
            await self._go()
            return
        await asyncio.wait({self._way})
        if not self._way.cancelled() and (error := self._way.result()) is not None:
            raise error

    async def _walk(self) -> Exception | None:
        try:
            await self._go()
        except Exception as error:  # noqa: BLE001  raised on leaving; the house stands until then
            return error
        return None


class _Background:
    """Tasks that live as long as the house; they are cancelled when it is left."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._started: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def open(cls) -> "AsyncIterator[_Background]":
        async with asyncio.TaskGroup() as tasks:
            background = cls(tasks)
            try:
                yield background
            finally:
                for task in background._started:
                    task.cancel()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Work without which the house can't stand: when it breaks, all of it stops, loudly."""

        async def watched() -> None:
            try:
                await work
            except Exception:
                log.exception("background_work_broke")
                raise

        self._started.append(self._tasks.create_task(watched()))

    def finish(self, work: Coroutine[None, None, T]) -> "asyncio.Task[T]":
        """Work that is seen through to its end."""
        return self._tasks.create_task(work)

    def every(self, seconds: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
        async def now_and_then() -> None:
            while True:
                await _pause(seconds)
                try:
                    await work()
                except DATABASE_AWAY as error:
                    log.debug("skipped", error=repr(error)[:200])

        self.start(now_and_then())


async def _pause(seconds: float) -> None:
    never = asyncio.Event()
    try:
        async with asyncio.timeout(seconds):
            await never.wait()
    except TimeoutError:
        return
