"""One thread in Postgres, with the same commands as `MemorySystem`, and no other worker."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from app.agents.catalog import Catalog
from app.agents.registry import AgentRegistry
from app.clock import SystemClock, new_id, sleep
from app.commands.runs.cancel import cancel
from app.commands.runs.new_run import IfThreadMissing, OnActive, StartRequest
from app.commands.runs.start import start_run
from app.commands.tickets.decide import decide
from app.commands.tickets.decision_types import DecisionRequest
from app.context import ServiceContext, ServiceLimits
from app.domain.agents.specs import AgentSpec
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.ids import MessageId, RunId, Tenant, ThreadId, WorkerId
from app.domain.principals import DEFAULT_TENANT
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Text
from app.domain.tickets.decisions import DecisionAnswer
from app.domain.tickets.tickets import Ticket
from app.events.fanout.hub import Hub
from app.events.feeds.tenant_feeds import TenantFeeds
from app.events.group_commit import GroupCommit
from app.events.journal import Journal
from app.events.sse_encoding import EventBatch
from app.events.transaction import EventTransactions, Publisher
from app.llm.scripted.model import ScriptedModel, in_order
from app.runtime.active_run import ActiveRun
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.endings import Ending, fail
from app.runtime.loop import advance
from app.runtime.ports.tools import Tool
from app.storage.events import event_log
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.runs import claims, runs, tool_calls
from app.storage.threads import messages
from app.storage.tickets import tickets
from app.workers.execution import Execution
from app.workers.execution_context import ExecutionContext
from app.workers.load_run import load_run
from tests.support.replicas import ANN, OneModel
from tests.support.team import TEAM
from tests.support.thread_rows import Rows

_TIMEOUT_SECONDS = 15.0


class NoOtherWorkers:
    """A relay for a single process: it drops all announcements."""

    def announce(self, batch: EventBatch) -> None:
        pass


class DatabaseServices:
    """The pools of one database, and the running event writer."""

    def __init__(self, database: Database) -> None:
        self.database = database
        clock, self.publisher = SystemClock(), Publisher(Hub(), NoOtherWorkers())
        self.outgoing = EventTransactions(database, self.publisher, clock)
        self.writer = GroupCommit(database, self.publisher, self.outgoing, clock)
        self._writing = asyncio.get_running_loop().create_task(self.writer.run())

    @staticmethod
    async def open(url: str) -> "DatabaseServices":
        return DatabaseServices(
            await Database.open(url, DatabaseOptions(pool_size=2, hot_pool_size=3))
        )

    async def close(self) -> None:
        self._writing.cancel()
        await asyncio.wait({self._writing})
        await self.database.close()


@dataclass(slots=True)
class RealEmitter:
    """A run's journal, with a `flush` that waits until it is written."""

    writer: GroupCommit
    journal: Journal

    async def flush(self) -> None:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while self.journal._pending and not self.journal.lost.is_set():
                self.writer._wake(self.journal)
                await sleep(0.0005)
            await self.journal._flushed.wait()

    def hold(self) -> None:
        self.journal.flush_blocked = True

    def drop(self) -> None:
        self.journal.take()


class RealSystem:
    """One thread and its runs, one after the other."""

    is_real = True

    def __init__(
        self, services: DatabaseServices, spec: AgentSpec, tools: Mapping[str, Tool]
    ) -> None:
        self.services = services
        self.spec = spec
        self.thread_id = ThreadId(new_id())
        self.run_id = RunId("")
        database, clock = services.database, SystemClock()
        team = {id_: replace(spec, id=id_) for id_ in TEAM}
        catalog = Catalog(agents=team, models={}, tools=tools, plugins={})
        registry = AgentRegistry(catalog, OneModel(ScriptedModel("scripted", in_order())), database)
        self._execution_context = ExecutionContext(
            database=database, writer=services.writer, agents=registry, clock=clock
        )
        self._execution: Execution
        self._context = ServiceContext(
            database=database,
            events=services.outgoing,
            publisher=services.publisher,
            hub=(hub := Hub()),
            feeds=TenantFeeds(database, hub),
            clock=clock,
            agents=registry,
            limits=ServiceLimits(),
            send_cancel_hint=self._announce_nothing,
            heartbeat_timeout=_TIMEOUT_SECONDS,
        )

    # --- commands -------------------------------------------------------------------------------

    async def start(self, *, here: bool) -> ClaimedRun | None:
        message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text("go"),))
        request = StartRequest(
            agent_id=self.spec.id,
            thread_id=self.thread_id,
            run_id=None,
            messages=(message,),
            on_active=OnActive.REJECT,
            if_thread_missing=IfThreadMissing.CREATE,
            metadata={},
            digest="go",
        )
        worker = WorkerId(new_id()) if here else None
        started = await start_run(self._context, ANN, request, worker=worker)
        self.run_id = started.record.id
        return started.claimed

    async def claim(self) -> ClaimedRun | None:
        """Claim for a worker without a heartbeat, so that the next worker may claim as well."""
        claimed = await claims.claim(
            self.services.database.pool,
            DEFAULT_TENANT,
            self.thread_id,
            self.run_id,
            WorkerId(new_id()),
            _TIMEOUT_SECONDS,
        )
        if claimed is None:
            return None
        return ClaimedRun(
            record=claimed.record,
            next_seq=claimed.next_message_seq,
            previous_state=claimed.previous_state,
            thread_state=claimed.thread_state,
        )

    async def decide(self, ticket: Ticket, answer: DecisionAnswer) -> None:
        request = DecisionRequest(
            ticket=ticket.id, answer=answer, decision_id=None, args_digest=None
        )
        await decide(self._context, ANN, self.run_id, [request], deliver=False)

    async def cancel(self, reason: str | None) -> None:
        await cancel(self._context, ANN, self.run_id, reason=reason)

    async def _announce_nothing(self, tenant: Tenant, run_id: RunId, reason: str | None) -> None:
        """Sends no hint: the script decides whether the owner notices."""

    # --- executing ------------------------------------------------------------------------------

    async def load(
        self,
        claimed: ClaimedRun,
        agent: ResolvedAgent,
        agents: Agents,
        interruption: Interruption,
    ) -> tuple[ActiveRun, RealEmitter]:
        record, writer = claimed.record, self.services.writer
        self._execution = Execution(self._execution_context, claimed, asyncio.Event(), interruption)
        journal = writer.journal(
            record.tenant, record.thread_id, record.id, record.attempt, interruption.abandon
        )
        run = await load_run(
            self._execution_context,
            claimed,
            journal=journal,
            agent=agent,
            agents=agents,
            interruption=interruption,
            begin=None,
        )
        return run, RealEmitter(writer, journal)

    async def advance(self, run: ActiveRun) -> Ending:
        return await self._execution._end(advance(run), partial(fail, run))

    async def rows(self) -> Rows:
        database = self.services.database
        page = await event_log.read_after(
            database.pool, DEFAULT_TENANT, self.thread_id, 0, limit=100_000
        )
        async with database.reading() as connection:
            record = await runs.get(connection, DEFAULT_TENANT, self.run_id)
            asked = await tickets.of_run(connection, DEFAULT_TENANT, self.run_id)
            calls = await tool_calls.of_run(connection, DEFAULT_TENANT, self.run_id)
        assert record is not None
        state = await database.pool.fetchval(
            "SELECT state::text FROM threads WHERE id = $1", self.thread_id
        )
        return Rows(
            record=record,
            log=await messages.history(database.pool, DEFAULT_TENANT, self.thread_id),
            events=[
                {
                    "seq": event.seq,
                    "thread_id": self.thread_id,
                    "run_id": event.run_id,
                    "event_type": event.event_type,
                    **json.loads(event.body),
                    **({} if event.step is None else {"step": event.step}),
                }
                for event in page.events
            ],
            tickets=asked,
            calls=calls,
            thread_state=json.loads(state or "{}"),
        )
