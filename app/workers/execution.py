"""One execution: a claimed run is loaded, advanced and brought to an end that is written down.

Whatever happens in here, the run isn't left behind: it is done, it waits, another worker has it, or it
has been given up for another worker to claim.
"""

import asyncio
from dataclasses import dataclass, field

import structlog

from app import telemetry
from app.backends.base import Backend
from app.backends.registry import target_of
from app.backends.remote.endings import finish_remote
from app.backends.remote.lifecycle import advance_remote, call_off_remote, fail_claimed_remote
from app.backends.remote.run import RemoteRun, target_in
from app.commands.runs.end_idle import is_of_remote_agent
from app.commands.threads.save_summary import save_late_summary
from app.domain.agents.specs import AgentSpec
from app.domain.errors import DatabaseUnavailable, InferenceFailed, OwnershipLost, PluginFailed
from app.domain.ids import AgentId, AgentVersion
from app.domain.runs.runs import RunRecord
from app.domain.runs.terminations import WORKER_LOST, Failed, termination_to_json
from app.events.journal import Journal
from app.runtime.active_run import ActiveRun
from app.runtime.agent import (
    Agents,
    RemoteAgent,
    ResolvedAgent,
    UnknownAgentVersion,
    placeholder_agent,
)
from app.runtime.cancellation import Interruption, InterruptReason
from app.runtime.compaction.compaction import NO_RESULT, Begin, Compaction
from app.runtime.endings import Ending, HandedOver, RunFinished, Suspended, fail
from app.runtime.handoff import active_agent
from app.runtime.loop import advance, cancel_claimed, fail_claimed
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.tools.frontend import with_frontend_tools
from app.workers.execution_context import ClaimedRun, ExecutionContext
from app.workers.liveness.poison_guard import MAX_LOSSES
from app.workers.load_run import load_remote, load_run
from app.workers.missing_agent_versions import wait_for_version

UNEXPECTED_ERROR = "Something broke on our side; the logs say what."
RELEASE_INTERVAL_SECONDS = 1.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Execution:
    """One claimed run on this worker, from the claim to its ending."""

    context: ExecutionContext
    claimed: ClaimedRun
    stopping: asyncio.Event
    """Set when this process is about to end."""
    interruption: Interruption = field(default_factory=Interruption)
    start_task: Begin | None = None
    """Begins what may outlive the run, in a task of the worker's; without it there is no such thing."""

    @property
    def record(self) -> RunRecord:
        return self.claimed.record

    async def run(self) -> None:
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
            except DATABASE_UNAVAILABLE as error:
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
        journal = self.context.writer.journal(
            record.tenant,
            record.thread_id,
            record.id,
            record.attempt,
            on_lost=self.interruption.abandon,
        )
        if isinstance(agent, UnknownAgentVersion):
            if self.interruption.wish is InterruptReason.CANCEL:
                self._report(await self._call_off(journal))
            else:
                await wait_for_version(self.context, self.claimed, journal, agent)
            return
        if isinstance(agent, RemoteAgent):
            await self._carry_out_remotely(journal, agent.spec)
            return
        run = await self._load(journal, agent)
        if record.losses > MAX_LOSSES:
            self._report(
                await fail_claimed(
                    run, WORKER_LOST, f"{record.losses} workers were lost over this run"
                )
            )
            return
        outlives = False
        try:
            ending = await self._advance(run)
            self._report(ending)
            outlives = isinstance(ending, RunFinished) and run.compaction.is_pending
        finally:
            if outlives and self.start_task is not None:
                self.start_task(self._keep_late_summary(run.compaction))
            else:
                run.compaction.give_up()

    async def _call_off(self, journal: Journal) -> RunFinished:
        """End a cancelled run whose agent isn't here, in the shape that its agent would give it."""
        record = self.record
        stands_in = placeholder_agent(record.agent_id)
        async with self.context.database.reading() as connection:
            is_remote = await is_of_remote_agent(connection, record)
        if not is_remote:
            return await cancel_claimed(await self._load(journal, stands_in))
        remote = await load_remote(
            self.context,
            self.claimed,
            journal=journal,
            spec=stands_in.spec,
            target=target_in(record),
            interruption=self.interruption,
        )
        return await call_off_remote(remote)

    async def _carry_out_remotely(self, journal: Journal, spec: AgentSpec) -> None:
        if spec.endpoint is None:
            raise RuntimeError(f"agent {spec.id!r} has no endpoint")
        backend = self.context.backends.of(spec.endpoint)
        run = await load_remote(
            self.context,
            self.claimed,
            journal=journal,
            spec=spec,
            target=target_of(spec.endpoint),
            interruption=self.interruption,
        )
        losses = self.record.losses
        if losses > MAX_LOSSES:
            detail = f"{losses} workers were lost over this run"
            self._report(await fail_claimed_remote(run, WORKER_LOST, detail))
            return
        self._report(await self._advance_remote(run, backend))

    async def _advance_remote(self, run: RemoteRun, backend: Backend) -> Ending:
        try:
            ending = await advance_remote(run, backend)
        except (OwnershipLost, DatabaseUnavailable):
            raise
        except Exception:
            log.exception("run_failed")
            return await finish_remote(run, Failed("internal_error", UNEXPECTED_ERROR))
        if isinstance(ending, HandedOver):
            await self._give_up(failed=False)
        return ending

    @property
    def _agents(self) -> Agents:
        record = self.record
        return with_frontend_tools(self.context.agents.for_tenant(record.tenant), record.request)

    def _agent_at_work(self) -> tuple[AgentId, AgentVersion | None]:
        """Whoever the run was handed to; at its beginning, the agent that it was started with."""
        handed_to = (
            None if self.record.run_state is None else active_agent(self.claimed.thread_state)
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
        except (OwnershipLost, DatabaseUnavailable):
            raise
        except Exception:
            log.exception("run_failed")
            return await fail(run, "internal_error", UNEXPECTED_ERROR)
        if isinstance(ending, HandedOver):
            await self._give_up(failed=False)
        return ending

    def _report(self, ending: Ending) -> None:
        match ending:
            case RunFinished(termination):
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
            kept = outcome is not NO_RESULT and await save_late_summary(
                self.context.database, record.tenant, record.thread_id, outcome
            )
            log.info("late_summary", kept=kept)
        except DATABASE_UNAVAILABLE as error:
            log.warning("late_summary_lost", error=repr(error))
        except Exception:
            log.exception("late_summary_lost")

    async def _load(self, journal: Journal, agent: ResolvedAgent) -> ActiveRun:
        return await load_run(
            self.context,
            self.claimed,
            journal=journal,
            agent=agent,
            agents=self._agents,
            interruption=self.interruption,
            begin=self.start_task,
        )

    # --- giving it up ---------------------------------------------------------------------------

    async def _let_go(self, *, failed: bool) -> None:
        """Give up a run that went wrong here, if it still is ours; an outage isn't the run's fault.

        Nobody else may claim it while this process lives and owns it. So an outage is waited for, unless
        the process ends.
        """
        while True:
            try:
                await self._give_up(failed=failed)
                return
            except DATABASE_UNAVAILABLE:
                log.debug("run_not_released")
            try:
                async with asyncio.timeout(RELEASE_INTERVAL_SECONDS):
                    await self.stopping.wait()
                    return
            except TimeoutError:
                continue

    async def _give_up(self, *, failed: bool) -> None:
        """Let another worker continue at once, if the run still is ours to give."""
        record = self.record
        async with self.context.database.transaction() as connection:
            if await runs.release(
                connection, record.tenant, record.id, record.attempt, failed=failed
            ):
                key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
                await deliveries.enqueue(connection, key)

    async def _cancel_reason(self) -> str | None:
        async with self.context.database.reading() as connection:
            return await runs.cancel_reason(connection, self.record.tenant, self.record.id)
