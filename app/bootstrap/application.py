"""Builds every part of a process in order, and closes them in reverse order."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from app.agents.catalog import Catalog
from app.agents.registry import AgentRegistry
from app.backends.registry import Backends
from app.bootstrap.agents import known_backends, load_agents, require_working_models
from app.bootstrap.background_tasks import BackgroundTasks
from app.bootstrap.connections import (
    database_options,
    database_url,
    open_transport,
    require_direct_url,
    stream_token_secrets,
)
from app.bootstrap.file_chunks import file_chunks
from app.bootstrap.mcp import REFRESH_SECONDS, McpReports, StoredListings
from app.bootstrap.mcp_tokens import token_services
from app.bootstrap.memory import memory_rules
from app.bootstrap.secrets import redactor_of
from app.bootstrap.workers import Shutdown, build_workers
from app.clock import SystemClock, new_id
from app.context import ServiceContext, ServiceLimits
from app.domain.deps import NO_DEPS, Deps
from app.domain.ids import WorkerId
from app.domain.runs.rate_limits import RateLimitPolicy
from app.events.fanout.cancel_hints import CancelHints
from app.events.fanout.hub import Hub
from app.events.fanout.relay import Relay, Topic
from app.events.feeds.tenant_feeds import TenantFeeds
from app.events.group_commit import GroupCommit
from app.events.transaction import EventTransactions, Publisher
from app.llm.catalog import ModelCatalog
from app.settings import Settings
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.errors import unusable
from app.storage.schema_revision import SchemaStatus, read_schema, require_usable
from app.tools.functions.startup import opened
from app.tools.mcp.servers import McpServers, opened_servers
from app.workers.background_tasks.execution import TaskContext
from app.workers.execution_context import ExecutionContext
from app.workers.heartbeat import Heartbeat
from app.workers.history_cache import HistoryCache
from app.workers.worker import Worker


class Application(Struct, frozen=True, kw_only=True):
    """The parts of a running process."""

    settings: Settings
    database: Database
    database_address: str
    catalog: Catalog
    models: ModelCatalog
    ctx: ServiceContext
    worker: Worker | None
    heartbeat: Heartbeat
    relay: Relay
    stream_token_secrets: tuple[bytes, ...]
    shutdown: Shutdown
    """Hands over executing runs while requests are still served; closing waits for its end."""


async def _migrate(url: str, database: Database) -> None:
    if (await read_schema(database.pool)).status is SchemaStatus.OLD:
        from app.storage import migrations  # noqa: PLC0415  seldom needed, and slow to import

        await migrations.upgrade(url)


@asynccontextmanager
async def open_application(settings: Settings) -> AsyncIterator[Application]:
    """Start the parts that the role needs; on closing, hand over executing runs and stop them."""
    require_direct_url(settings)
    async with AsyncExitStack() as stack:
        url, place = await database_url(settings, stack)
        database = await Database.open(
            url, database_options(settings), listen_url=settings.listen_url
        )
        stack.push_async_callback(database.close)
        if settings.migrate or (settings.migrate is None and settings.database_url is None):
            await _migrate(url, database)
        await require_usable(database.pool)
        backends = known_backends()
        stack.push_async_callback(backends.aclose)
        catalog, models = load_agents(settings, backends)
        stack.push_async_callback(models.aclose)
        if settings.role != "api" and settings.agents is not None:
            require_working_models(settings.agents, catalog, models)
        deps = NO_DEPS
        if settings.role != "api":
            # Closed after the workers have stopped, because what is entered later is closed first.
            deps = await stack.enter_async_context(
                opened(catalog.startup, timeout=settings.startup_function_timeout)
            )
        mcp = await stack.enter_async_context(
            opened_servers(
                catalog.mcp,
                StoredListings(database),
                os.environ,
                redactor_of(settings, os.environ),
                executes=settings.role != "api",
                token_services=await token_services(database, catalog, settings, os.environ),
            )
        )
        try:
            application = await _build(
                settings, stack, database, place, catalog, models, backends, deps, mcp
            )
        except DATABASE_UNAVAILABLE as error:
            raise unusable(place, error) from error
        yield application


async def _build(
    settings: Settings,
    stack: AsyncExitStack,
    database: Database,
    place: str,
    catalog: Catalog,
    models: ModelCatalog,
    backends: Backends,
    deps: Deps,
    mcp: McpServers,
) -> Application:
    worker_id = WorkerId(new_id())
    redact = redactor_of(settings, os.environ)
    clock, hub = SystemClock(), Hub()
    relay = Relay(database, hub, worker_id, await open_transport(settings, database), clock)
    publisher = Publisher(hub, relay)
    transactions = EventTransactions(database, publisher, clock)
    writer = GroupCommit(database, publisher, transactions, clock)
    registry = AgentRegistry(catalog, models, database, backends, deps, mcp)
    await registry.publish()

    memory, chunks = memory_rules(settings, redact), file_chunks(settings, os.environ)
    ctx = ServiceContext(
        database=database,
        events=transactions,
        publisher=publisher,
        hub=hub,
        feeds=TenantFeeds(database, hub, poll=settings.log_poll),
        clock=clock,
        agents=registry,
        limits=ServiceLimits(
            queue_per_thread=settings.max_queue_per_thread,
            message_bytes=settings.max_message_bytes,
            file_bytes=settings.max_file_bytes,
            signal_seconds=settings.signal_retention,
            memory=memory.limits,
        ),
        send_cancel_hint=CancelHints(relay).send,
        heartbeat_timeout=settings.heartbeat_timeout,
        backends=backends,
        redact=redact,
        memory_language=memory.language,
        chunks=chunks,
    )
    execution = ExecutionContext(
        database=database,
        writer=writer,
        agents=registry,
        clock=clock,
        backends=backends,
        redact=redact,
        rate_limits=RateLimitPolicy(
            suspend_after=settings.rate_limit_suspend_after, max_wait=settings.rate_limit_max_wait
        ),
        max_answer_bytes=settings.max_answer_bytes,
        histories=HistoryCache(settings.history_cache_bytes),
        max_inline_bytes=settings.max_inline_bytes,
        max_file_bytes=settings.max_file_bytes,
        mcp=mcp,
        memory=memory,
        chunks=chunks,
    )
    task_execution = TaskContext(
        database=database,
        outgoing=transactions,
        agents=registry,
        redact=redact,
        mcp=mcp,
        max_file_bytes=settings.max_file_bytes,
        memory=memory,
        chunks=chunks,
    )
    workers = build_workers(
        settings, worker_id, ctx, execution, task_execution, relay.set_has_others
    )
    background = await stack.enter_async_context(BackgroundTasks.open())
    background.start(writer.run())
    background.start(relay.run())
    background.start(relay.listen({Topic.CANCEL: workers.worker.on_cancel_hint}))
    background.every(settings.log_poll, relay.catch_up)
    if mcp.servers:
        mcp.process = "" if settings.role == "api" else worker_id
        reports = McpReports(database, mcp)
        await reports.refresh()
        background.every(REFRESH_SECONDS, reports.refresh)
        stack.push_async_callback(reports.close)
    await workers.start(background)
    if settings.role != "api":
        background.start(models.load_prices())
    shutdown = Shutdown(workers, background)
    stack.push_async_callback(shutdown.finish)
    return Application(
        settings=settings,
        database=database,
        database_address=place,
        catalog=catalog,
        models=models,
        ctx=ctx,
        worker=workers.worker if workers.executes else None,
        heartbeat=workers.heartbeat,
        relay=relay,
        stream_token_secrets=await stream_token_secrets(settings, database),
        shutdown=shutdown,
    )
