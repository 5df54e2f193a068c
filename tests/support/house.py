"""A replica of the service without its HTTP side, which a test can kill; and runs as a test sees them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from app.agents.catalog import Catalog
from app.agents.roster import Roster
from app.backends.registry import Backends
from app.clock import SystemClock, new_id, pause
from app.control.answers import DecisionRequest
from app.control.cancel import CancelAnswer, cancel
from app.control.decide import Decided
from app.control.desk import Desk, Limits
from app.control.errands import run_errand
from app.control.new_runs import IfThreadMissing, OnActive, StartRequest
from app.control.pause import PauseAnswer, Unpaused
from app.control.pause import pause as pause_run
from app.control.signals import run_signal_job
from app.dispatch.bench import Workbench
from app.dispatch.deadlines import Deadlines
from app.dispatch.deafness import Deafness
from app.dispatch.launch import decide_and_resume, resume_run, start_run
from app.dispatch.liveness import Liveness
from app.dispatch.queue import DeliveryQueue, Handled
from app.dispatch.remote_looks import RemoteLooks
from app.dispatch.suspicion import Suspicion
from app.dispatch.sweeper import Sweeper
from app.dispatch.task_execution import TaskBench
from app.dispatch.tasks import TaskWorker
from app.dispatch.worker import Worker
from app.domain.agents import AgentSpec
from app.domain.decisions import Action, Answer
from app.domain.ids import AgentId, MessageId, RunId, Tenant, ThreadId, WorkerId
from app.domain.inference import NO_OPTIONS, InferenceOptions, RetryPolicy
from app.domain.json_values import Json, JsonObject
from app.domain.limits import OnLimit, limits_in_request
from app.domain.messages import LoggedMessage, Message, Role, Text
from app.domain.principals import DEFAULT_TENANT, Principal, Scope
from app.domain.rate_limits import RateLimitPolicy
from app.domain.runs import RunRecord
from app.domain.tickets import Ticket
from app.events import follow as following
from app.events.hub import Hub
from app.events.notify_wire import NotifyWire
from app.events.outgoing import Outgoing, Publisher
from app.events.relay import Hint, Relay, Topic
from app.events.writer import Writer
from app.llm.catalog import ModelCatalog
from app.llm.scripted import Script, ScriptedModel
from app.plugins.kinds import PluginConfig, PluginKind
from app.plugins.shipped import SHIPPED
from app.runtime.plugins import Plugin
from app.runtime.ports import LanguageModel, Tool
from app.storage import messages, runs, tickets
from app.storage.connecting import DatabaseOptions
from app.storage.database import DATABASE_AWAY, Database
from app.storage.runs import RunKey
from tests.support.event_order import check_run

Event: TypeAlias = dict[str, Any]

ANN = Principal(DEFAULT_TENANT, "ann", frozenset(Scope))
PATIENCE = 15.0
PROMPT_RETRIES = RetryPolicy(backoff_base=0.01, overloaded_backoff_base=0.01, max_backoff=0.02)
FOLLOW_UP = 0.05
_LONG_AGO = "UPDATE workers SET heartbeat_at = now() - interval '1 day' WHERE id = $1"


class OneModel(ModelCatalog):
    """The same model under whatever name an agent asks for."""

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
    """A catalog with one agent that has these tools, these plugins as they are, and shipped ones by
    their tables."""
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
        plugins={**SHIPPED, **{plugin.name: _ready_made(plugin) for plugin in plugins}},
    )


def _ready_made(plugin: Plugin) -> PluginKind[PluginConfig]:
    return PluginKind(name=plugin.name, config=PluginConfig, build=lambda *_: plugin)


def configured(catalog: Catalog, **tables: JsonObject) -> Catalog:
    """The same agents, with shipped plugins as an agents file would configure them."""
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
    """One process of the service: everything but HTTP, with short times."""

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
        self.relay = Relay(database, self.hub, self.me, NotifyWire(database), clock)
        self.publisher = Publisher(self.hub, self.relay)
        self.outgoing = Outgoing(database, self.publisher, clock)
        self.writer = Writer(database, self.publisher, self.outgoing, clock)
        self.roster = Roster(catalog, _models(played), database, backends)
        self.desk = Desk(
            database=database,
            outgoing=self.outgoing,
            publisher=self.publisher,
            hub=self.hub,
            clock=clock,
            roster=self.roster,
            limits=Limits(),
            announce_cancel=self._announce_cancel,
            heartbeat_timeout=PATIENCE,
            backends=backends,
        )
        bench = Workbench(
            database=database,
            writer=self.writer,
            roster=self.roster,
            clock=clock,
            backends=backends,
            rate_limits=rate_limits or RateLimitPolicy(),
        )
        suspicion = Suspicion()
        self.worker = Worker(bench, self.me, suspicion, slots=slots, heartbeat_timeout=PATIENCE)
        self.tasks = TaskWorker(
            TaskBench(database=database, outgoing=self.outgoing, roster=self.roster),
            self.me,
            suspicion,
            slots=slots,
            heartbeat_timeout=PATIENCE,
        )
        deafness = Deafness(time.monotonic, remembered=PATIENCE)
        self.liveness = Liveness(
            database,
            self.worker,
            self.tasks,
            role="all",
            interval=0.5,
            patience=5,
            deafness=deafness,
        )
        self.deadlines = Deadlines(self.desk, interval=FOLLOW_UP)
        self.looks = RemoteLooks(self.desk, interval=4 * FOLLOW_UP)
        self.sweeper = Sweeper(
            database,
            self.roster,
            interval=FOLLOW_UP,
            heartbeat_timeout=PATIENCE,
            deafness=deafness,
        )
        self.queue = DeliveryQueue(
            database,
            self._handle,
            self.tasks.handle,
            partial(run_errand, self.desk),
            partial(run_signal_job, self.desk),
            poll=0.2,
            lost_after=2.0,
        )
        self._tasks: list[asyncio.Task[None]] = []

    # --- life and death ---------------------------------------------------------------------------

    async def open(self, tasks: asyncio.TaskGroup) -> None:
        await self.roster.publish()
        await self.liveness.beat()
        work: list[Coroutine[None, None, None]] = [
            self.worker.run(),
            self.tasks.run(),
            self.writer.run(),
            self.relay.run(),
            self.relay.listen({Topic.CANCEL: self.liveness.heard}),
            self._look_for_lost_hints(),
            self.liveness.run(),
            self.sweeper.run(),
            self.deadlines.run(),
            self.looks.run(),
            self.queue.work(),
        ]
        self._tasks = [tasks.create_task(one) for one in work]
        await asyncio.wait_for(self.relay.hears.wait(), PATIENCE)

    async def stop(self) -> None:
        """As on SIGTERM: what executes is handed over."""
        if not self._tasks:
            return
        await self.take_nothing_new()
        await self.tasks.stop(grace=0)
        await self.worker.stop(grace=PATIENCE)
        await self.liveness.stop()
        await self._end()

    async def kill(self) -> None:
        """As by kill -9: nothing is handed over, and everybody finds out at once."""
        if not self._tasks:
            return
        await self.take_nothing_new()
        executing = set(self._tasks[:2])
        for task in executing:
            task.cancel()
        await asyncio.wait(executing, timeout=PATIENCE)
        await self._end(is_dead=True)

    async def take_nothing_new(self) -> None:
        """Broken off, the queue's library would leave tasks behind that nobody owns; and a sweep that is still
        under way would keep a test's own from its turn."""
        self.queue.stop()
        self.sweeper.stop()
        self.deadlines.stop()
        self.looks.stop()
        await asyncio.wait(self._tasks[-4:], timeout=PATIENCE)

    async def _end(self, *, is_dead: bool = False) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=PATIENCE)
        try:
            while is_dead:
                with suppress(*DATABASE_AWAY):
                    await self.database.hot.execute(_LONG_AGO, self.me)
                    break
        finally:
            await self.database.close()

    async def _look_for_lost_hints(self) -> None:
        while True:
            await pause(2 * FOLLOW_UP)
            with suppress(*DATABASE_AWAY):
                await self.relay.catch_up()

    async def _handle(self, key: RunKey, dispatch_id: str) -> Handled:
        if not await self.worker.reserve_within(1.0):
            return Handled.BUSY
        await self.worker.claim_and_launch(key, dispatch_id)
        return Handled.DONE

    async def _announce_cancel(self, tenant: Tenant, run_id: RunId, reason: str | None) -> None:
        hint = Hint(run_id, f"{tenant}\n{run_id}\n{reason or ''}")
        await self.relay.tell(Topic.CANCEL, [hint])

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
    ) -> "Run":
        """Start a run, claimed by this replica or left to whoever gets its delivery."""
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
        )
        worker = self.worker if here else None
        started = await start_run(self.desk, worker, ANN, request)
        return Run(self, started.record)

    def same(self, run: "Run") -> "Run":
        """The same run as this replica sees it."""
        return Run(self, run.record)


class Run:
    """A run that a test has started."""

    def __init__(self, replica: Replica, record: RunRecord) -> None:
        self.replica = replica
        self.record = record
        self.id = record.id
        self.thread_id = record.thread_id

    async def until(self, event_type: str, count: int = 1) -> list[Event]:
        """All that the run has said until the event came so many times, in a sound order."""
        scope = following.Scope(self.record.tenant, self.thread_id, self.id, until_done=True)
        follower = following.follow(
            self.replica.database.hot,
            self.replica.hub,
            scope,
            after=self.record.events_from - 1,
            heartbeat=PATIENCE,
        )
        said: list[Event] = []
        try:
            async with asyncio.timeout(PATIENCE):
                async for heard in follower.frames():
                    said += [json.loads(frame.json) for frame in heard or ()]
                    if types_of(said).count(event_type) >= count:
                        check_run(said)
                        return said
        except TimeoutError:
            raise AssertionError(f"no {event_type} number {count} in {types_of(said)}") from None
        finally:
            follower.close()
        raise AssertionError(f"the run ended without {event_type} number {count}: {types_of(said)}")

    async def finished(self, count: int = 1) -> list[Event]:
        """All that the run has said until it came to rest so many times."""
        return await self.until("run_finish", count)

    async def ended(self) -> list[Event]:
        """All that the run has said until it was done, however often it came to rest before."""
        count = 1
        while True:
            said = await self.finished(count)
            if of_type(said, "run_finish")[-1]["termination"]["type"] != "suspended":
                return said
            count += 1

    async def now(self) -> RunRecord:
        async with self.replica.database.reading() as connection:
            record = await runs.get(connection, self.record.tenant, self.id)
        assert record is not None
        return record

    async def log(self) -> list[LoggedMessage]:
        return await messages.history(self.replica.database.hot, self.record.tenant, self.thread_id)

    async def tickets(self) -> list[Ticket]:
        async with self.replica.database.reading() as connection:
            return await tickets.of_run(connection, self.record.tenant, self.id)

    async def calls(self) -> dict[str, str]:
        """Status of each kept call."""
        rows = await self.replica.database.hot.fetch(
            "SELECT call_id, status FROM tool_calls WHERE run_id = $1 ORDER BY position", self.id
        )
        return {row["call_id"]: row["status"] for row in rows}

    async def decide(self, ticket: str, action: str, **more: Any) -> Decided:
        return await self.decide_all(decision(ticket, action, **more))

    async def decide_all(self, *requests: DecisionRequest) -> Decided:
        house = self.replica
        return await decide_and_resume(house.desk, house.worker, ANN, self.id, requests)

    async def cancel(self, reason: str | None = None) -> CancelAnswer:
        return await cancel(self.replica.desk, ANN, self.id, reason=reason)

    async def pause(self, reason: str | None = None) -> PauseAnswer:
        return await pause_run(self.replica.desk, ANN, self.id, reason=reason)

    async def resume(self) -> Unpaused:
        return await resume_run(self.replica.desk, self.replica.worker, ANN, self.id)


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
        answer=Answer(action=Action(action), arguments=arguments, result=result, reason=reason),
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
async def replica(
    url: str,
    catalog: Catalog,
    script: Script | ModelCatalog,
    *,
    slots: int = 10,
    backends: Backends | None = None,
    rate_limits: RateLimitPolicy | None = None,
) -> AsyncIterator[Replica]:
    """A replica that works until the block is left, or it is killed."""
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
