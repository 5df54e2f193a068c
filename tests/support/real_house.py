"""One thread in Postgres, with the same commands as its twin in memory, and nobody else at work on it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.agents.catalog import Catalog
from app.agents.registry import AgentRegistry
from app.clock import SystemClock, new_id, sleep
from app.commands.runs.cancel import cancel
from app.commands.runs.new_run import IfThreadMissing, OnActive, StartRequest
from app.commands.runs.start import ClaimedStart, start_run
from app.commands.tickets.decide import decide
from app.commands.tickets.decision_types import DecisionRequest
from app.context import ServiceContext, ServiceLimits
from app.domain.agents.specs import AgentSpec
from app.domain.ids import MessageId, RunId, Tenant, ThreadId, WorkerId
from app.domain.principals import DEFAULT_TENANT
from app.domain.runs.runs import RunStatus
from app.domain.threads.messages import LoggedMessage, Message, Role, Text
from app.domain.tickets.decisions import DecisionAnswer
from app.domain.tickets.tickets import Ticket
from app.events.fanout.hub import Hub
from app.events.group_commit import GroupCommit
from app.events.journal import Journal
from app.events.sse_encoding import EventBatch
from app.events.transaction import EventTransactions, Publisher
from app.llm.scripted.model import ScriptedModel, in_order
from app.runtime.active_run import ActiveRun
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.endings import Ending
from app.runtime.ports import Tool
from app.storage.events import event_log
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.runs import claims, runs, tool_calls
from app.storage.threads import messages
from app.storage.tickets import tickets
from app.workers.execution import Execution
from app.workers.execution_context import ClaimedRun, ExecutionContext
from app.workers.load_run import load_run
from tests.support.house import ANN, OneModel
from tests.support.team import TEAM
from tests.support.thread_rows import Rows

_PATIENCE = 15.0


class _NobodyElse:
    """There is no other process to tell."""

    def announce(self, batch: EventBatch) -> None:
        pass


class Office:
    """What all houses of one database share: its pools, and the writer at work until it is closed."""

    def __init__(self, database: Database) -> None:
        self.database = database
        clock, self.publisher = SystemClock(), Publisher(Hub(), _NobodyElse())
        self.outgoing = EventTransactions(database, self.publisher, clock)
        self.writer = GroupCommit(database, self.publisher, self.outgoing, clock)
        self._writing = asyncio.get_running_loop().create_task(self.writer.run())

    @staticmethod
    async def open(url: str) -> "Office":
        return Office(await Database.open(url, DatabaseOptions(pool_size=2, hot_pool_size=3)))

    async def close(self) -> None:
        self._writing.cancel()
        await asyncio.wait({self._writing})
        await self.database.close()


@dataclass(slots=True)
class RealVoice:
    """A run's journal, and a way to wait until it is written."""

    writer: GroupCommit
    journal: Journal

    async def flush(self) -> None:
        async with asyncio.timeout(_PATIENCE):
            while self.journal._pending and not self.journal.lost.is_set():
                self.writer._wake(self.journal)
                await sleep(0.0005)
            await self.journal._flushed.wait()

    def hold(self) -> None:
        self.journal.held = True

    def drop(self) -> None:
        self.journal.take()


class RealHouse:
    """One thread and its runs, one after the other."""

    is_real = True

    def __init__(self, office: Office, spec: AgentSpec, tools: Mapping[str, Tool]) -> None:
        self.office = office
        self.spec = spec
        self.thread_id = ThreadId(new_id())
        self.run_id = RunId("")
        database, clock = office.database, SystemClock()
        team = {id_: replace(spec, id=id_) for id_ in TEAM}
        catalog = Catalog(agents=team, models={}, tools=tools, plugins={})
        registry = AgentRegistry(catalog, OneModel(ScriptedModel("scripted", in_order())), database)
        self._bench = ExecutionContext(
            database=database, writer=office.writer, agents=registry, clock=clock
        )
        self._execution: Execution
        self._desk = ServiceContext(
            database=database,
            events=office.outgoing,
            publisher=office.publisher,
            hub=Hub(),
            clock=clock,
            agents=registry,
            limits=ServiceLimits(),
            announce_cancel=self._announce_nothing,
            heartbeat_timeout=_PATIENCE,
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
        started = await start_run(self._desk, ANN, request, worker=worker)
        self.run_id = started.record.id
        if not isinstance(started, ClaimedStart):
            return None
        first = started.first_message_seq
        log = tuple(LoggedMessage(first + place, m) for place, m in enumerate(started.messages))
        return ClaimedRun(
            record=started.record,
            next_seq=first + len(log),
            previous_state=RunStatus.CREATED,
            log=log if first == 1 else None,
            is_announced=True,
            thread_state=started.thread_state,
        )

    async def claim(self) -> ClaimedRun | None:
        """By a worker that never shows a heartbeat, so that whoever comes next may claim as well."""
        claimed = await claims.claim(
            self.office.database.pool,
            DEFAULT_TENANT,
            self.thread_id,
            self.run_id,
            WorkerId(new_id()),
            _PATIENCE,
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
        await decide(self._desk, ANN, self.run_id, [request], deliver=False)

    async def cancel(self, reason: str | None) -> None:
        await cancel(self._desk, ANN, self.run_id, reason=reason)

    async def _announce_nothing(self, tenant: Tenant, run_id: RunId, reason: str | None) -> None:
        """Whether the owner hears of it is the script's to say."""

    # --- executing ------------------------------------------------------------------------------

    async def load(
        self,
        claimed: ClaimedRun,
        agent: ResolvedAgent,
        agents: Agents,
        interruption: Interruption,
    ) -> tuple[ActiveRun, RealVoice]:
        record, writer = claimed.record, self.office.writer
        self._execution = Execution(self._bench, claimed, asyncio.Event(), interruption)
        journal = writer.journal(
            record.tenant, record.thread_id, record.id, record.attempt, interruption.abandon
        )
        run = await load_run(
            self._bench,
            claimed,
            journal=journal,
            agent=agent,
            agents=agents,
            interruption=interruption,
            begin=None,
        )
        return run, RealVoice(writer, journal)

    async def advance(self, run: ActiveRun) -> Ending:
        return await self._execution._advance(run)

    async def rows(self) -> Rows:
        database = self.office.database
        stretch = await event_log.read_after(
            database.pool, DEFAULT_TENANT, self.thread_id, 0, limit=100_000
        )
        calls = await tool_calls.of_open_step(database.pool, DEFAULT_TENANT, self.run_id)
        async with database.reading() as connection:
            record = await runs.get(connection, DEFAULT_TENANT, self.run_id)
            asked = await tickets.of_run(connection, DEFAULT_TENANT, self.run_id)
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
                for event in stretch.events
            ],
            tickets=asked,
            calls=[state for state, _ in calls],
            thread_state=json.loads(state or "{}"),
        )
