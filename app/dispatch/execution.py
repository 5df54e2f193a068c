"""One execution: a claimed run is loaded, advanced and brought to an end that is written down.

Whatever happens in here, the run isn't left behind: it is done, it waits, another worker has it, or it
has been given up for another worker to claim.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import structlog

from app import telemetry
from app.agents.roster import Roster
from app.backends.base import Backend
from app.backends.registry import Backends, target_of
from app.backends.remote_root import advance_remote, end, write_off_remote
from app.backends.remote_run import RemoteRun
from app.clock import Clock, pause
from app.control.late_summary import keep_late_summary
from app.dispatch.inbox import RunInbox
from app.domain.agents import AgentSpec
from app.domain.checkpoints import Checkpoint, Said
from app.domain.endpoints import Endpoint
from app.domain.errors import DatabaseAway, InferenceFailed, OwnershipLost, PluginFailed
from app.domain.events import RunFinish, RunStart, StepEnd, StreamReset
from app.domain.identity import run_identity
from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import JsonObject
from app.domain.messages import LoggedMessage
from app.domain.rules import Rule
from app.domain.runs import (
    SUSPENDED,
    WORKER_LOST,
    Failed,
    RunRecord,
    RunStatus,
    Waiting,
    termination_to_json,
    waiting_reason,
)
from app.domain.tickets import Ticket, TicketStatus, waiting_to_json
from app.events.journal import Journal
from app.events.writer import Writer
from app.runtime.agent import Agents, RemoteAgent, ResolvedAgent, Unresolvable
from app.runtime.cancellation import Interruption
from app.runtime.compaction import NOTHING, Begin, Compaction
from app.runtime.context import ActiveRun, Start
from app.runtime.endings import Ending, Finished, HandedOver, Suspended, fail
from app.runtime.handoff import agent_at_work
from app.runtime.loop import advance, write_off
from app.storage import deliveries, events, messages, rules, runs, tickets, tool_calls
from app.storage.database import DATABASE_AWAY, Database
from app.storage.runs import RunKey
from app.tools.frontend import with_frontend_tools

MOST_LOSSES = 5
"""Workers that may be lost over a run without any progress before it is given up."""
BROKEN = "Something broke on our side; the logs say what."
LET_GO_AGAIN = 1.0
LOOK_AGAIN = 0.25

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What every execution works with."""

    database: Database
    writer: Writer
    roster: Roster
    clock: Clock
    backends: Backends = field(default_factory=lambda: Backends({}, {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that is this worker's, under its attempt. `log` is known when nothing was before it, and
    `run_start` has been said when it is announced."""

    record: RunRecord
    next_seq: int
    was: RunStatus
    log: tuple[LoggedMessage, ...] | None = None
    is_announced: bool = False
    thread_state: JsonObject = field(default_factory=dict)


@dataclass(slots=True)
class Answers:
    """The run's tickets, as the loop asks for them."""

    bench: Workbench
    record: RunRecord

    async def unapplied(self) -> Sequence[Ticket]:
        return [ticket for ticket in await self._all() if ticket.is_unsettled]

    async def names_used(self) -> Collection[str]:
        return {ticket.ticket_id for ticket in await self._all()}

    async def _all(self) -> Sequence[Ticket]:
        """As patient as a commit: there may be results that nobody has saved yet."""
        while True:
            try:
                async with self.bench.database.reading() as connection:
                    return await tickets.of_run(connection, self.record.tenant, self.record.id)
            except DatabaseAway:
                await pause(LOOK_AGAIN)


@dataclass(slots=True)
class Remembered:
    """The rules of the run's tenant, as the gate asks for them."""

    bench: Workbench
    record: RunRecord

    async def for_calls_of(self, agent_id: AgentId) -> Sequence[Rule]:
        """As patient as a commit: a call must not pass because a rule couldn't be read."""
        record = self.record
        while True:
            try:
                async with self.bench.database.reading() as connection:
                    return await rules.for_calls(
                        connection, record.tenant, record.id, record.thread_id, agent_id
                    )
            except DatabaseAway:
                await pause(LOOK_AGAIN)


@dataclass(slots=True)
class Execution:
    """One claimed run on this worker, from the claim to its ending."""

    bench: Workbench
    claimed: ClaimedRun
    stopping: asyncio.Event
    """Set when this process is about to end."""
    interruption: Interruption = field(default_factory=Interruption)
    begin: Begin | None = None
    """Begins what may outlive the run, in a task of the worker's; without it there is no such thing."""

    @property
    def record(self) -> RunRecord:
        return self.claimed.record

    async def carry_out(self) -> None:
        """Advance the run; never raises but for cancellation."""
        record = self.record
        structlog.contextvars.bind_contextvars(
            run_id=record.id, thread_id=record.thread_id, tenant=record.tenant
        )
        with telemetry.run_seconds.labels(record.agent_id).time():
            try:
                await self._carry_out()
            except OwnershipLost:
                telemetry.ownership_lost.inc()
                log.warning("ownership_lost", attempt=record.attempt)
                await self._let_go(failed=True)
            except DATABASE_AWAY as error:
                log.warning("execution_broken_off", attempt=record.attempt, error=repr(error))
                await self._let_go(failed=False)
            except Exception:
                log.exception("execution_failed", attempt=record.attempt)
                await self._let_go(failed=True)

    async def _carry_out(self) -> None:
        record = self.record
        if record.cancel_requested_at is not None:
            self.interruption.cancel(await self._cancel_reason())
        agent = await self._agents.at_version(*self._agent_at_work())
        journal = self.bench.writer.journal(
            record.tenant,
            record.thread_id,
            record.id,
            record.attempt,
            on_lost=self.interruption.abandon,
        )
        if isinstance(agent, Unresolvable):
            await self._wait_for_version(journal, agent)
            return
        if isinstance(agent, RemoteAgent):
            await self._carry_out_remotely(journal, agent.spec)
            return
        run = await self._load(journal, agent)
        if record.losses > MOST_LOSSES:
            self._report(
                await write_off(
                    run, WORKER_LOST, f"{record.losses} workers were lost over this run"
                )
            )
            return
        outlives = False
        try:
            ending = await self._advance(run)
            self._report(ending)
            outlives = isinstance(ending, Finished) and run.compaction.is_owing
        finally:
            if outlives and self.begin is not None:
                self.begin(self._keep_late_summary(run.compaction))
            else:
                run.compaction.give_up()

    async def _carry_out_remotely(self, journal: Journal, spec: AgentSpec) -> None:
        if spec.endpoint is None:
            raise RuntimeError(f"agent {spec.id!r} has no endpoint")
        backend = self.bench.backends.of(spec.endpoint)
        run = await self._load_remote(journal, spec, spec.endpoint)
        losses = self.record.losses
        if losses > MOST_LOSSES:
            detail = f"{losses} workers were lost over this run"
            self._report(await write_off_remote(run, backend, WORKER_LOST, detail))
            return
        self._report(await self._advance_remote(run, backend))

    async def _advance_remote(self, run: RemoteRun, backend: Backend) -> Ending:
        try:
            ending = await advance_remote(run, backend)
        except (OwnershipLost, DatabaseAway):
            raise
        except Exception:
            log.exception("run_failed")
            return await end(run, Failed("internal_error", BROKEN))
        if isinstance(ending, HandedOver):
            await self._give_up(failed=False)
        return ending

    async def _load_remote(
        self, journal: Journal, spec: AgentSpec, endpoint: Endpoint
    ) -> RemoteRun:
        return RemoteRun(
            record=self.record,
            spec=spec,
            target=target_of(endpoint),
            events=journal,
            store=journal,
            interruption=self.interruption,
            clock=self.bench.clock,
            log=await self._history(),
            next_seq=self.claimed.next_seq,
            start=await self._where_it_stood(),
            answers=Answers(self.bench, self.record),
            inbox=RunInbox(self.bench.database, self.bench.clock, self.record),
            thread_state=self.claimed.thread_state,
        )

    @property
    def _agents(self) -> Agents:
        record = self.record
        return with_frontend_tools(self.bench.roster.of(record.tenant), record.request)

    def _agent_at_work(self) -> tuple[AgentId, AgentVersion | None]:
        """Whoever the run was handed to; at its beginning, the agent that it was started with."""
        handed_to = (
            None if self.record.run_state is None else agent_at_work(self.claimed.thread_state)
        )
        return handed_to or (self.record.agent_id, self.record.agent_version)

    async def _advance(self, run: ActiveRun) -> Ending:
        try:
            ending = await advance(run)
        except InferenceFailed as error:
            log.warning("inference_failed", kind=error.kind, detail=error.detail)
            return await fail(run, error.kind, error.detail)
        except PluginFailed as error:
            log.warning("plugin_failed", plugin=error.plugin, phase=error.phase, exc_info=True)
            return await fail(run, "plugin_failed", str(error))
        except (OwnershipLost, DatabaseAway):
            raise
        except Exception:
            log.exception("run_failed")
            return await fail(run, "internal_error", BROKEN)
        if isinstance(ending, HandedOver):
            await self._give_up(failed=False)
        return ending

    def _report(self, ending: Ending) -> None:
        match ending:
            case Finished(termination):
                name = termination_to_json(termination)["type"]
            case Suspended():
                name = "suspended"
            case HandedOver():
                log.info("handed_over")
                return
        telemetry.runs_finished.labels(self.record.agent_id, name).inc()
        log.info("activation_ended", termination=name)

    async def _keep_late_summary(self, compaction: Compaction) -> None:
        """What is summarised when the run ends serves the thread's next one; it needs no slot."""
        record = self.record
        outcome = await compaction.late()
        try:
            kept = outcome is not NOTHING and await keep_late_summary(
                self.bench.database, record.tenant, record.thread_id, outcome
            )
            log.info("late_summary", kept=kept)
        except DATABASE_AWAY as error:
            log.warning("late_summary_lost", error=repr(error))
        except Exception:
            log.exception("late_summary_lost")

    # --- loading --------------------------------------------------------------------------------

    async def _load(self, journal: Journal, agent: ResolvedAgent) -> ActiveRun:
        record = self.record
        inbox = RunInbox(self.bench.database, self.bench.clock, record)
        return ActiveRun(
            record=record,
            agent=agent,
            events=journal,
            store=journal,
            interruption=self.interruption,
            clock=self.bench.clock,
            log=await self._history(),
            next_seq=self.claimed.next_seq,
            start=await self._where_it_stood(),
            answers=Answers(self.bench, record),
            rules=Remembered(self.bench, record),
            inbox=inbox,
            tasks=inbox,
            agents=self._agents,
            compaction=Compaction(self.begin),
            thread_state=self.claimed.thread_state,
        )

    async def _history(self) -> list[LoggedMessage]:
        known, record = self.claimed.log, self.record
        if known is not None:
            return list(known)
        return await messages.history(self.bench.database.hot, record.tenant, record.thread_id)

    @property
    def _is_new(self) -> bool:
        """Never executed before: nothing can have been left behind."""
        return self.record.attempt == 1

    async def _where_it_stood(self) -> Start:
        if self._is_new:
            return Start(continues=self.claimed.is_announced)
        record, pool = self.record, self.bench.database.hot
        calls = await tool_calls.of_open_step(pool, record.tenant, record.id)
        said = await events.last_borders(
            pool, record.tenant, record.thread_id, record.id, record.events_from
        )
        return Start(
            continues=self.claimed.was is RunStatus.RUNNING and said.is_open,
            step_begun=said.begun_step == record.steps + 1,
            calls=[state for state, _ in calls],
            marked_at={state.call.id: at for state, at in calls if at is not None},
            tickets=await Answers(self.bench, record).unapplied(),
        )

    # --- other ends -----------------------------------------------------------------------------

    async def _wait_for_version(self, journal: Journal, missing: Unresolvable) -> None:
        """Rest, loudly and resumable, until a worker comes that has this version of the agent."""
        log.warning("agent_version_unavailable", reason=missing.reason)
        record = self.record
        identity = run_identity(record)
        waiting = Waiting(waiting_reason("agent_version_unavailable"), missing.reason)
        start = await self._where_it_stood()
        if not start.continues:
            journal.say(RunStart(identity, record.lineage.parent_run_id), None)
        elif start.step_begun:
            # Begun again, under the same number, once the run goes on.
            if not start.calls:
                journal.say(StreamReset("agent_version_unavailable"), record.steps + 1)
            journal.say(StepEnd(), record.steps + 1)
        still_open = [ticket for ticket in start.tickets if ticket.status is TicketStatus.OPEN]
        finish = RunFinish(
            identity=identity,
            termination=SUSPENDED,
            waiting=waiting_to_json(
                waiting.reason, waiting.message, still_open, record.dispatch_id
            ),
        )
        await journal.commit(
            Checkpoint(
                tenant=record.tenant,
                thread_id=record.thread_id,
                run_id=record.id,
                attempt=record.attempt,
                next_seq=self.claimed.next_seq,
                messages=(),
                output=record.output,
                state=waiting,
                steps=record.steps,
                usage=record.usage,
                run_state=record.run_state or {},
                said=(Said(finish, None),),
                parent_run_id=record.lineage.parent_run_id,
            )
        )

    async def _let_go(self, *, failed: bool) -> None:
        """Give up a run that went wrong here, if it still is ours; an outage isn't the run's fault.

        Nobody else may claim it while this process lives and owns it. So an outage is waited for, unless
        the process ends.
        """
        while True:
            try:
                await self._give_up(failed=failed)
                return
            except DATABASE_AWAY:
                log.warning("run_not_released")
            try:
                async with asyncio.timeout(LET_GO_AGAIN):
                    await self.stopping.wait()
                    return
            except TimeoutError:
                continue

    async def _give_up(self, *, failed: bool) -> None:
        """Let another worker continue at once, if the run still is ours to give."""
        record = self.record
        async with self.bench.database.transaction() as connection:
            if await runs.release(
                connection, record.tenant, record.id, record.attempt, failed=failed
            ):
                key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
                await deliveries.enqueue(connection, key)

    async def _cancel_reason(self) -> str | None:
        async with self.bench.database.reading() as connection:
            return await runs.cancel_reason(connection, self.record.tenant, self.record.id)
