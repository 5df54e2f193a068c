"""A replica of the service without HTTP, which a test can kill, and handles for its runs."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeAlias

from app.agents.catalog import Catalog
from app.agents.registry import AgentRegistry
from app.backends.registry import Backends
from app.builtin_plugins.builtin import BUILTIN_KINDS
from app.builtin_plugins.kinds import PluginConfig, PluginKind
from app.clock import SystemClock, new_id, sleep
from app.commands.followups.dispatch import run_followup
from app.commands.runs.cancel import cancel
from app.commands.runs.new_run import IfThreadMissing, OnActive, StartRequest
from app.commands.runs.pause import Unpaused, unpause
from app.commands.runs.pause import pause as pause_run
from app.commands.tickets.decide import Decided
from app.commands.tickets.decision_types import DecisionRequest
from app.commands.tickets.deliver_signal import run_signal_job
from app.context import ServiceContext, ServiceLimits
from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, MessageId, RunId, ThreadId, WorkerId
from app.domain.inference.options import NO_OPTIONS, InferenceOptions, RetryPolicy
from app.domain.json_values import Json, JsonObject
from app.domain.principals import DEFAULT_TENANT, Principal, Scope
from app.domain.runs.limits import OnLimit, limits_in_request
from app.domain.runs.rate_limits import RateLimitPolicy
from app.domain.runs.requested_answers import ANY_ANSWER, RequestedAnswer
from app.domain.runs.runs import RunRecord
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage, Message, Role, Text
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.tickets import Ticket
from app.events import follow as following
from app.events.fanout.cancel_hints import CancelHints
from app.events.fanout.hub import Hub
from app.events.fanout.notify import NotifyTransport
from app.events.fanout.relay import Relay, Topic
from app.events.feeds.tenant_feeds import TenantFeeds
from app.events.group_commit import GroupCommit
from app.events.transaction import EventTransactions, Publisher
from app.llm.catalog import ModelCatalog
from app.llm.scripted.model import Script, ScriptedModel
from app.runtime.plugins import Plugin
from app.runtime.ports.models import LanguageModel
from app.runtime.ports.tools import Tool
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.runs import runs
from app.storage.threads import messages
from app.storage.tickets import tickets
from app.workers.background_tasks.execution import TaskContext
from app.workers.background_tasks.worker import TaskWorker
from app.workers.delivery_queue import DeliveryQueue
from app.workers.direct_start import decide_and_execute, execute_here, start_and_execute
from app.workers.execution_context import ExecutionContext
from app.workers.heartbeat import Heartbeat
from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.liveness.poison_guard import PoisonGuard
from app.workers.periodic.remote_polling import RemotePolling
from app.workers.periodic.sweeper import Sweeper
from app.workers.periodic.ticket_expiry import TicketExpiry
from app.workers.worker import Worker
from tests.support.event_order import check_run

Event: TypeAlias = dict[str, Any]

ANN = Principal(DEFAULT_TENANT, "ann", frozenset(Scope))
TIMEOUT_SECONDS = 15.0
PROMPT_RETRIES = RetryPolicy(backoff_base=0.01, overloaded_backoff_base=0.01, max_backoff=0.02)
POLL_INTERVAL_SECONDS = 0.05
_BACKDATE_HEARTBEAT = "UPDATE workers SET heartbeat_at = now() - interval '1 day' WHERE id = $1"


class OneModel(ModelCatalog):
    """A catalog that has one model under every name."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__([], {})
        self._only = model

    def model(self, name: str) -> LanguageModel:
        return self._only

    def problem(self, name: str) -> str | None:
        return None


def _models(played: Script | ModelCatalog) -> ModelCatalog:
    if isinstance(played, ModelCatalog):
        return played
    return OneModel(ScriptedModel("scripted", played))


def an_agent(
    *tools: Tool,
    approval: Sequence[str] = (),
    background: Sequence[str] = (),
    max_rounds: int = 8,
    id: str = "tester",
    plugins: Sequence[Plugin] = (),
    plugin_tables: Mapping[str, JsonObject] | None = None,
    **more: Any,
) -> Catalog:
    """A catalog with one agent: these tools, these plugin objects, and built-in plugins by their tables."""
    by_name = {tool.descriptor.name: tool for tool in tools}
    spec = AgentSpec(
        id=AgentId(id),
        model="scripted",
        tools=tuple(by_name),
        approval=tuple(approval),
        background=tuple(background),
        max_rounds=max_rounds,
        **{
            "plugins": {**{plugin.name: {} for plugin in plugins}, **(plugin_tables or {})},
            "retry": PROMPT_RETRIES,
            **more,
        },
    )
    return Catalog(
        agents={spec.id: spec},
        models={},
        tools=by_name,
        plugins={**BUILTIN_KINDS, **{plugin.name: _ready_made(plugin) for plugin in plugins}},
    )


def _ready_made(plugin: Plugin) -> PluginKind[PluginConfig]:
    return PluginKind(name=plugin.name, config=PluginConfig, build=lambda *_: plugin)


def configured(catalog: Catalog, **tables: JsonObject) -> Catalog:
    """The same agents, with built-in plugins from tables of an agents file."""
    agents = {
        id_: replace(spec, plugins={**spec.plugins, **tables})
        for id_, spec in catalog.agents.items()
    }
    return replace(catalog, agents=agents)


def joined(*catalogs: Catalog) -> Catalog:
    """All agents of several catalogs."""
    return Catalog(
        agents={id_: spec for catalog in catalogs for id_, spec in catalog.agents.items()},
        models={},
        tools={name: tool for catalog in catalogs for name, tool in catalog.tools.items()},
        plugins={name: kind for catalog in catalogs for name, kind in catalog.plugins.items()},
    )


class Replica:
    """One process of the service without HTTP, with short intervals."""

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        played: Script | ModelCatalog,
        slots: int,
        backends: Backends | None = None,
        rate_limits: RateLimitPolicy | None = None,
    ) -> None:
        backends = backends or Backends({}, {})
        self.me = WorkerId(new_id())
        self.database = database
        self.catalog = catalog
        self.starts_with = next(iter(catalog.agents))
        clock, self.hub = SystemClock(), Hub()
        self.feeds = TenantFeeds(database, self.hub, poll=TIMEOUT_SECONDS)
        self.relay = Relay(database, self.hub, self.me, NotifyTransport(database), clock)
        self.publisher = Publisher(self.hub, self.relay)
        self.outgoing = EventTransactions(database, self.publisher, clock)
        self.writer = GroupCommit(database, self.publisher, self.outgoing, clock)
        self.registry = AgentRegistry(catalog, _models(played), database, backends)
        self.ctx = ServiceContext(
            database=database,
            events=self.outgoing,
            publisher=self.publisher,
            hub=self.hub,
            feeds=self.feeds,
            clock=clock,
            agents=self.registry,
            limits=ServiceLimits(),
            send_cancel_hint=CancelHints(self.relay).send,
            heartbeat_timeout=TIMEOUT_SECONDS,
            backends=backends,
        )
        execution = ExecutionContext(
            database=database,
            writer=self.writer,
            agents=self.registry,
            clock=clock,
            backends=backends,
            rate_limits=rate_limits or RateLimitPolicy(),
        )
        poison_guard = PoisonGuard()
        self.worker = Worker(
            execution, self.me, poison_guard, slots=slots, heartbeat_timeout=TIMEOUT_SECONDS
        )
        self.tasks = TaskWorker(
            TaskContext(database=database, outgoing=self.outgoing, agents=self.registry),
            self.me,
            poison_guard,
            slots=slots,
            heartbeat_timeout=TIMEOUT_SECONDS,
        )
        outage_allowance = OutageAllowance(time.monotonic, remembered=TIMEOUT_SECONDS)
        self.heartbeat = Heartbeat(
            database,
            self.worker,
            self.tasks,
            role="all",
            interval=0.5,
            timeout=5,
            outage_allowance=outage_allowance,
        )
        self.deadlines = TicketExpiry(self.ctx, interval=POLL_INTERVAL_SECONDS)
        self.remote_polling = RemotePolling(self.ctx, interval=4 * POLL_INTERVAL_SECONDS)
        self.sweeper = Sweeper(
            database,
            self.registry,
            interval=POLL_INTERVAL_SECONDS,
            heartbeat_timeout=TIMEOUT_SECONDS,
            outage_allowance=outage_allowance,
        )
        self.queue = DeliveryQueue(
            database,
            self.worker.handle,
            self.tasks.handle,
            partial(run_followup, self.ctx),
            partial(run_signal_job, self.ctx),
            poll=0.2,
            lost_after=2.0,
        )
        self._tasks: list[asyncio.Task[None]] = []

    # --- start and stop ---------------------------------------------------------------------------

    async def open(self, tasks: asyncio.TaskGroup) -> None:
        await self.registry.publish()
        await self.heartbeat.write()
        work: list[Coroutine[None, None, None]] = [
            self.worker.run(),
            self.tasks.run(),
            self.writer.run(),
            self.relay.run(),
            self.relay.listen({Topic.CANCEL: self.worker.on_cancel_hint}),
            self._look_for_lost_hints(),
            self.heartbeat.run(),
            self.sweeper.run(),
            self.deadlines.run(),
            self.remote_polling.run(),
            self.queue.work(),
        ]
        self._tasks = [tasks.create_task(one) for one in work]
        await asyncio.wait_for(self.relay.connected.wait(), TIMEOUT_SECONDS)

    async def stop(self) -> None:
        """Stop as on SIGTERM: executing runs are handed over."""
        if not self._tasks:
            return
        await self.take_nothing_new()
        await self.tasks.stop(grace=0)
        await self.worker.stop(grace=TIMEOUT_SECONDS)
        await self.heartbeat.stop()
        await self._end()

    async def kill(self) -> None:
        """Stop as by kill -9: nothing is handed over. The worker's heartbeat is set to long ago."""
        if not self._tasks:
            return
        await self.take_nothing_new()
        executing = set(self._tasks[:2])
        for task in executing:
            task.cancel()
        await asyncio.wait(executing, timeout=TIMEOUT_SECONDS)
        await self._end(is_dead=True)

    async def take_nothing_new(self) -> None:
        """Stop claims and periodic jobs, and wait for them.

        Cancelling the queue library would leave tasks without an owner. A running sweep would hold the lock
        that the test's own sweep needs.
        """
        self.queue.stop()
        self.sweeper.stop()
        self.deadlines.stop()
        self.remote_polling.stop()
        await asyncio.wait(self._tasks[-4:], timeout=TIMEOUT_SECONDS)

    async def _end(self, *, is_dead: bool = False) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=TIMEOUT_SECONDS)
        try:
            while is_dead:
                with suppress(*DATABASE_UNAVAILABLE):
                    await self.database.pool.execute(_BACKDATE_HEARTBEAT, self.me)
                    break
        finally:
            await self.database.close()

    async def _look_for_lost_hints(self) -> None:
        while True:
            await sleep(2 * POLL_INTERVAL_SECONDS)
            with suppress(*DATABASE_UNAVAILABLE):
                await self.relay.catch_up()

    # --- commands ---------------------------------------------------------------------------------

    async def start(
        self,
        text: str = "go",
        *,
        thread_id: ThreadId | None = None,
        here: bool = True,
        run_id: RunId | None = None,
        overrides: InferenceOptions = NO_OPTIONS,
        frontend_tools: Sequence[JsonObject] = (),
        on_active: OnActive = OnActive.ENQUEUE,
        limits: JsonObject | None = None,
        on_limit: OnLimit = OnLimit.STOP,
        answer: RequestedAnswer = ANY_ANSWER,
    ) -> "Run":
        """Start a run. With `here` this replica claims it; otherwise the next worker with its delivery does."""
        request = StartRequest(
            agent_id=self.starts_with or None,
            thread_id=thread_id or ThreadId(new_id()),
            run_id=run_id,
            messages=(Message(id=MessageId(new_id()), role=Role.USER, content=(Text(text),)),),
            on_active=on_active,
            if_thread_missing=IfThreadMissing.CREATE,
            metadata={},
            digest=str(len(text)),
            overrides=overrides,
            frontend_tools=tuple(frontend_tools),
            limits=limits_in_request(limits or {}, on_limit),
            answer=answer,
        )
        worker = self.worker if here else None
        started = await start_and_execute(self.ctx, worker, ANN, request)
        return Run(self, started.record)

    def same(self, run: "Run") -> "Run":
        """A handle for the same run on this replica."""
        return Run(self, run.record)


class Run:
    """A handle for a run that a test started."""

    def __init__(self, replica: Replica, record: RunRecord) -> None:
        self.replica = replica
        self.record = record
        self.id = record.id
        self.thread_id = record.thread_id

    async def until(self, event_type: str, count: int = 1) -> list[Event]:
        """Wait for `count` events of a type; returns all events so far and checks their order."""
        scope = following.StreamScope(self.record.tenant, self.thread_id, self.id, until_done=True)
        follower = following.follow(
            self.replica.database.pool,
            self.replica.hub,
            scope,
            after=self.record.events_from - 1,
            heartbeat=TIMEOUT_SECONDS,
        )
        emitted: list[Event] = []
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                async for received in follower.frames():
                    emitted += [json.loads(frame.with_trace.json) for frame in received or ()]
                    if types_of(emitted).count(event_type) >= count:
                        check_run(emitted)
                        return emitted
        except TimeoutError:
            raise AssertionError(f"no {event_type} number {count} in {types_of(emitted)}") from None
        finally:
            follower.close()
        raise AssertionError(
            f"the run ended without {event_type} number {count}: {types_of(emitted)}"
        )

    async def finished(self, count: int = 1) -> list[Event]:
        """Wait until the run has finished or suspended `count` times; returns all events."""
        return await self.until("run_finish", count)

    async def ended(self) -> list[Event]:
        """Wait until the run is done; returns all events."""
        count = 1
        while True:
            emitted = await self.finished(count)
            if of_type(emitted, "run_finish")[-1]["termination"]["type"] != "suspended":
                return emitted
            count += 1

    async def now(self) -> RunRecord:
        async with self.replica.database.reading() as connection:
            record = await runs.get(connection, self.record.tenant, self.id)
        assert record is not None
        return record

    async def log(self) -> list[LoggedMessage]:
        return await messages.history(
            self.replica.database.pool, self.record.tenant, self.thread_id
        )

    async def tickets(self) -> list[Ticket]:
        async with self.replica.database.reading() as connection:
            return await tickets.of_run(connection, self.record.tenant, self.id)

    async def calls(self) -> dict[str, str]:
        """The status of each stored call."""
        rows = await self.replica.database.pool.fetch(
            "SELECT call_id, status FROM tool_calls WHERE run_id = $1 ORDER BY position", self.id
        )
        return {row["call_id"]: row["status"] for row in rows}

    async def decide(self, ticket: str, action: str, **more: Any) -> Decided:
        return await self.decide_all(decision(ticket, action, **more))

    async def decide_all(self, *requests: DecisionRequest) -> Decided:
        """Decide tickets, which may be named by their names, too."""
        replica = self.replica
        ids = {ticket.name: ticket.id for ticket in await self.tickets()}
        named = [replace(one, ticket=ids.get(one.ticket, one.ticket)) for one in requests]
        return await decide_and_execute(replica.ctx, replica.worker, ANN, self.id, named)

    async def cancel(self, reason: str | None = None) -> RunRecord:
        return await cancel(self.replica.ctx, ANN, self.id, reason=reason)

    async def pause(self, reason: str | None = None) -> RunRecord:
        return await pause_run(self.replica.ctx, ANN, self.id, reason=reason)

    async def resume(self) -> Unpaused:
        return await execute_here(
            self.replica.worker, partial(unpause, self.replica.ctx, ANN, self.id)
        )


def decision(
    ticket: str,
    action: str,
    *,
    arguments: JsonObject | None = None,
    result: Json = None,
    reason: str | None = None,
    decision_id: str | None = None,
) -> DecisionRequest:
    return DecisionRequest(
        ticket=ticket,
        answer=DecisionAnswer(
            action=Action(action), arguments=arguments, result=result, reason=reason
        ),
        decision_id=decision_id,
        args_digest=None,
    )


def types_of(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [event["event_type"] for event in events]


def of_type(events: Sequence[Event], event_type: str) -> list[Event]:
    return [event for event in events if event["event_type"] == event_type]


def texts_of(log: Sequence[LoggedMessage]) -> list[tuple[str, str]]:
    """Role and text of each message."""
    return [(entry.message.role.value, entry.message.text) for entry in log]


@asynccontextmanager
async def open_replica(
    url: str,
    catalog: Catalog,
    script: Script | ModelCatalog,
    *,
    slots: int = 10,
    backends: Backends | None = None,
    rate_limits: RateLimitPolicy | None = None,
) -> AsyncIterator[Replica]:
    """A replica that works until the block ends or it is killed."""
    database = await Database.open(url, DatabaseOptions(pool_size=4, hot_pool_size=4))
    async with asyncio.TaskGroup() as tasks:
        opened = Replica(database, catalog, script, slots, backends, rate_limits)
        try:
            await opened.open(tasks)
            yield opened
        except BaseException:
            await opened.kill()
            raise
        await opened.stop()
