"""Load a claimed run from the database, so that its execution continues where the last commit ended."""

from app.backends.remote.run import RemoteRun
from app.domain.agents.specs import AgentSpec
from app.domain.runs.claimed_run import ClaimedRun
from app.domain.runs.runs import RunStatus
from app.domain.threads.messages import LoggedMessage
from app.events.journal import Journal
from app.runtime.active_run import ActivationStart, ActiveRun
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.compaction.compaction import Compaction, StartTask
from app.storage.events import event_log
from app.storage.runs import tool_calls
from app.storage.threads import messages
from app.workers.execution_context import ExecutionContext
from app.workers.run_inbox import RunInbox
from app.workers.run_queries import StoredCrashEvidence, StoredRules, TicketAnswers


async def load_run(
    context: ExecutionContext,
    claimed: ClaimedRun,
    *,
    journal: Journal,
    agent: ResolvedAgent,
    agents: Agents,
    interruption: Interruption,
    begin: StartTask | None,
) -> ActiveRun:
    """Everything that the loop needs to execute a run of a local agent."""
    record = claimed.record
    inbox = RunInbox(context.database, context.writer.transactions, record)
    return ActiveRun(
        record=record,
        agent=agent,
        events=journal,
        store=journal,
        interruption=interruption,
        clock=context.clock,
        log=await _history(context, claimed),
        next_seq=claimed.next_seq,
        start=await step_progress(context, claimed),
        answers=TicketAnswers(context, record),
        remembered=StoredRules(context, record),
        crash_evidence=StoredCrashEvidence(context, record),
        rate_limits=context.rate_limits,
        inbox=inbox,
        tasks=inbox,
        agents=agents,
        compaction=Compaction(begin),
        redact=context.redact,
        thread_state=claimed.thread_state,
    )


async def load_remote(
    context: ExecutionContext,
    claimed: ClaimedRun,
    *,
    journal: Journal,
    spec: AgentSpec,
    target: str,
    interruption: Interruption,
) -> RemoteRun:
    """The same for a run of a remote agent."""
    record = claimed.record
    return RemoteRun(
        record=record,
        spec=spec,
        target=target,
        events=journal,
        store=journal,
        interruption=interruption,
        clock=context.clock,
        log=await _history(context, claimed),
        next_seq=claimed.next_seq,
        start=await step_progress(context, claimed),
        answers=TicketAnswers(context, record),
        inbox=RunInbox(context.database, context.writer.transactions, record),
        redact=context.redact,
        thread_state=claimed.thread_state,
    )


async def _history(context: ExecutionContext, claimed: ClaimedRun) -> list[LoggedMessage]:
    record = claimed.record
    if claimed.log is not None:
        return list(claimed.log)
    return await messages.history(context.database.pool, record.tenant, record.thread_id)


async def step_progress(context: ExecutionContext, claimed: ClaimedRun) -> ActivationStart:
    record, pool = claimed.record, context.database.pool
    if record.attempt == 1:
        # The first execution: no earlier one left a step, a call or a ticket.
        return ActivationStart(continues=claimed.is_announced)
    calls = await tool_calls.of_open_step(pool, record.tenant, record.id)
    progress = await event_log.step_progress(
        pool, record.tenant, record.thread_id, record.id, record.events_from
    )
    return ActivationStart(
        continues=claimed.previous_state is RunStatus.RUNNING and progress.is_open,
        step_begun=progress.begun_step == record.steps + 1,
        calls=[state for state, _ in calls],
        marked_at={state.call.id: at for state, at in calls if at is not None},
        tickets=await TicketAnswers(context, record).unapplied(),
    )
