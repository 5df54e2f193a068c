"""One execution: a claimed run is loaded and advanced, and its ending is committed.

After an execution the run is done, waits, belongs to another worker, or was released with a delivery so
that a worker claims it.
"""

import asyncio
from dataclasses import dataclass, field

import structlog

from app import telemetry
from app.backends.base import Backend
from app.backends.registry import target_of
from app.backends.remote.endings import finish_remote
from app.backends.remote.lifecycle import advance_remote, cancel_claimed_remote, fail_claimed_remote
from app.backends.remote.run import RemoteRun, target_in
from app.commands.runs.end_idle import is_of_remote_agent
from app.commands.threads.save_summary import save_late_summary
from app.domain.agents.specs import AgentSpec
from app.domain.errors import DatabaseUnavailable, InferenceFailed, OwnershipLost, PluginFailed
from app.domain.ids import AgentId, AgentVersion
from app.domain.runs.claimed_run import ClaimedRun
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
from app.runtime.compaction.compaction import NO_RESULT, Compaction, StartTask
from app.runtime.endings import Ending, HandedOver, RunFinished, Suspended, fail
from app.runtime.handoff import active_agent
from app.runtime.loop import advance, cancel_claimed, fail_claimed
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.tools.frontend import with_frontend_tools
from app.workers.execution_context import ExecutionContext
from app.workers.liveness.poison_guard import MAX_LOSSES
from app.workers.load_run import load_remote, load_run
from app.workers.missing_agent_versions import wait_for_version
from app.workers.periodic.loop import wait_for_next

UNEXPECTED_ERROR = "Something broke on our side; the logs say what."
RELEASE_INTERVAL_SECONDS = 1.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Execution:
    """One claimed run on this worker, from the claim to its ending."""

    context: ExecutionContext
    claimed: ClaimedRun
    stopping: asyncio.Event
    """Set when this process shuts down."""
    interruption: Interruption = field(default_factory=Interruption)
    start_task: StartTask | None = None
    """Starts work that may outlive the run, as a task of the worker. Without it, none is started."""

    @property
    def record(self) -> RunRecord:
        return self.claimed.record

    async def run(self) -> None:
        """Advance the run; raises nothing but cancellation."""
        record = self.record
        structlog.contextvars.bind_contextvars(
            run_id=record.id, thread_id=record.thread_id, tenant=record.tenant
        )
        with telemetry.run_seconds.labels(record.agent_id).time():
            try:
                await self._execute()
            except OwnershipLost:
                telemetry.ownership_lost.inc()
                log.warning("ownership_lost", attempt=record.attempt)
                await self._release_with_retries(failed=True)
            except DATABASE_UNAVAILABLE as error:
                log.warning(
                    "execution_interrupted_by_outage", attempt=record.attempt, error=repr(error)
                )
                await self._release_with_retries(failed=False)
            except Exception:
                log.exception("execution_failed", attempt=record.attempt)
                await self._release_with_retries(failed=True)

    async def _execute(self) -> None:
        record = self.record
        if record.cancel_requested_at is not None:
            self.interruption.cancel(await self._cancel_reason())
        agent = await self._agents.at_version(*self._active_agent())
        journal = self.context.writer.journal(
            record.tenant,
            record.thread_id,
            record.id,
            record.attempt,
            on_lost=self.interruption.abandon,
        )
        if isinstance(agent, UnknownAgentVersion):
            if self.interruption.requested is InterruptReason.CANCEL:
                self._report(await self._cancel_without_agent(journal))
            else:
                await wait_for_version(self.context, self.claimed, journal, agent)
            return
        if isinstance(agent, RemoteAgent):
            await self._execute_remotely(journal, agent.spec)
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
                self.start_task(self._save_late_summary(run.compaction))
            else:
                run.compaction.cancel()

    async def _cancel_without_agent(self, journal: Journal) -> RunFinished:
        """End a cancelled run whose agent version isn't installed here, as that agent would."""
        record = self.record
        placeholder = placeholder_agent(record.agent_id)
        async with self.context.database.reading() as connection:
            is_remote = await is_of_remote_agent(connection, record)
        if not is_remote:
            return await cancel_claimed(await self._load(journal, placeholder))
        remote = await load_remote(
            self.context,
            self.claimed,
            journal=journal,
            spec=placeholder.spec,
            target=target_in(record),
            interruption=self.interruption,
        )
        return await cancel_claimed_remote(remote)

    async def _execute_remotely(self, journal: Journal, spec: AgentSpec) -> None:
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
            await self._release(failed=False)
        return ending

    @property
    def _agents(self) -> Agents:
        record = self.record
        return with_frontend_tools(self.context.agents.for_tenant(record.tenant), record.request)

    def _active_agent(self) -> tuple[AgentId, AgentVersion | None]:
        """The agent that a hand-off made active; else the agent that the run was started with."""
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
            await self._release(failed=False)
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

    async def _save_late_summary(self, compaction: Compaction) -> None:
        """Save a summary that completes after the run's end, for the thread's next run. Uses no slot."""
        record = self.record
        outcome = await compaction.wait_for_result()
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

    # --- release --------------------------------------------------------------------------------

    async def _release_with_retries(self, *, failed: bool) -> None:
        """Release a run whose execution broke off; an outage (`failed=False`) doesn't count as a loss.

        No other worker may claim the run while this process owns it and has a heartbeat. So an outage is
        waited for, unless the process shuts down.
        """
        while True:
            try:
                await self._release(failed=failed)
                return
            except DATABASE_UNAVAILABLE:
                log.debug("run_not_released")
            if not await wait_for_next(self.stopping, RELEASE_INTERVAL_SECONDS):
                return

    async def _release(self, *, failed: bool) -> None:
        """Clear the run's owner and enqueue a delivery, if this attempt still owns the run."""
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
