"""One execution: a claimed run is loaded and advanced, and its ending is committed.

After an execution the run is done, waits, or belongs to another worker. Otherwise it was released with a
delivery, and any worker claims it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

import structlog

from app import telemetry
from app.backends.registry import target_of
from app.backends.remote.endings import fail_remote
from app.backends.remote.lifecycle import advance_remote, cancel_claimed_remote, fail_claimed_remote
from app.backends.remote.run import target_in
from app.commands.runs.end_idle import is_of_remote_agent
from app.commands.threads.save_summary import bill_late_summary, save_late_summary
from app.domain.agents.specs import AgentSpec
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.errors import DatabaseUnavailable, InferenceFailed, OwnershipLost, PluginFailed
from app.domain.ids import AgentId, AgentVersion
from app.domain.runs.runs import RunRecord
from app.domain.runs.terminations import WORKER_LOST, termination_to_json
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
from app.runtime.compaction.compaction import NO_RESULT, StartTask
from app.runtime.endings import Ending, HandedOver, RunFinished, Suspended, fail
from app.runtime.handoff import active_agent
from app.runtime.loop import advance, cancel_claimed, fail_claimed
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.tools.frontend import with_frontend_tools
from app.tools.mcp.oauth.token_store import Holder
from app.tools.mcp.servers import AgentsWithMcpTools
from app.tools.requested_answers import with_requested_answer
from app.tools.searchable_tools import with_searchable_tools
from app.workers.execution_context import ExecutionContext
from app.workers.liveness.poison_guard import MAX_LOSSES
from app.workers.load_run import load_remote, load_run
from app.workers.missing_agent_versions import wait_for_version
from app.workers.periodic.loop import wait_for_next

UNEXPECTED_ERROR = "An internal error occurred. The server's log has the details."
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
        """Advance the run. Raises only cancellation."""
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
        match agent:
            case ResolvedAgent():
                await self._execute_locally(journal, agent)
            case RemoteAgent():
                await self._execute_remotely(journal, agent.spec)
            case UnknownAgentVersion():
                if self.interruption.requested is InterruptReason.CANCEL:
                    self._report(await self._cancel_without_agent(journal))
                else:
                    await wait_for_version(self.context, self.claimed, journal, agent)
            case _:
                assert_never(agent)

    async def _execute_locally(self, journal: Journal, agent: ResolvedAgent) -> None:
        """Execute the run with the loop. An incomplete summary continues after the run's end."""
        run = await self._load(journal, agent)
        losses = self.record.losses
        if losses > MAX_LOSSES:
            detail = f"{losses} workers were lost over this run"
            self._report(await fail_claimed(run, WORKER_LOST, detail))
            return
        continues_summary = False
        try:
            ending = await self._end(advance(run), partial(fail, run))
            self._report(ending)
            continues_summary = isinstance(ending, RunFinished) and run.compaction.is_pending
        finally:
            if continues_summary and self.start_task is not None:
                self.start_task(self._save_late_summary(run))
            else:
                run.compaction.cancel()

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
        self._report(await self._end(advance_remote(run, backend), partial(fail_remote, run)))

    async def _cancel_without_agent(self, journal: Journal) -> RunFinished:
        """End a cancelled run whose agent version isn't installed here, as that agent would."""
        record = self.record
        placeholder = placeholder_agent(record.agent_id)
        async with self.context.database.reading_by_key() as connection:
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

    async def _end(
        self, advancing: Awaitable[Ending], fail_run: Callable[[str, str], Awaitable[RunFinished]]
    ) -> Ending:
        """Await the run's ending. An error fails the run, and a hand-over releases it."""
        try:
            ending = await advancing
        except InferenceFailed as error:
            log.warning("model_failed", kind=error.kind, detail=error.detail)
            return await fail_run(error.kind, error.detail)
        except PluginFailed as error:
            log.warning("plugin_failed", plugin=error.plugin, phase=error.phase, exc_info=True)
            return await fail_run("plugin_failed", str(error))
        except (OwnershipLost, DatabaseUnavailable):
            raise
        except Exception:
            log.exception("run_failed")
            return await fail_run("internal_error", UNEXPECTED_ERROR)
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
                log.info("run_handed_over")
                return
        telemetry.runs_finished.labels(self.record.agent_id, name).inc()
        log.info("activation_ended", termination=name)

    async def _save_late_summary(self, run: ActiveRun) -> None:
        """Save a summary that completes after the run's end, for the thread's next run. Uses no slot."""
        record = self.record
        outcome = await run.compaction.wait_for_result()
        try:
            await bill_late_summary(self.context.database, record, await run.billed_requests())
            saved = outcome is not NO_RESULT and await save_late_summary(
                self.context.database, record.tenant, record.thread_id, outcome
            )
            log.info("late_summary_finished", saved=saved)
        except DATABASE_UNAVAILABLE as error:
            log.warning("late_summary_lost", error=repr(error))
        except Exception:
            log.exception("late_summary_lost")

    # --- loading --------------------------------------------------------------------------------

    @property
    def _agents(self) -> Agents:
        record = self.record
        agents: Agents = AgentsWithMcpTools(
            self.context.agents.for_tenant(record.tenant),
            self.context.mcp,
            Holder(record.tenant, record.started_by),
        )
        agents = with_frontend_tools(agents, record.request)
        agents = with_requested_answer(agents, record.request)
        return with_searchable_tools(agents, record.request)

    def _active_agent(self) -> tuple[AgentId, AgentVersion | None]:
        """The agent that a hand-off made active; else the agent that the run was started with."""
        handed_to = (
            None if self.record.run_state is None else active_agent(self.claimed.thread_state)
        )
        return handed_to or (self.record.agent_id, self.record.agent_version)

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
        async with self.context.database.reading_by_key() as connection:
            return await runs.cancel_reason(connection, self.record.tenant, self.record.id)
