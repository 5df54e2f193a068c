"""Loading: a claimed run as it goes on here, from where the database says that it stood."""

from app.backends.remote.run import RemoteRun
from app.domain.agents.specs import AgentSpec
from app.domain.runs.runs import RunStatus
from app.domain.threads.messages import LoggedMessage
from app.events.journal import Journal
from app.runtime.active_run import ActivationStart, ActiveRun
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.compaction.compaction import Begin, Compaction
from app.storage.events import event_log
from app.storage.runs import tool_calls
from app.storage.threads import messages
from app.workers.execution_context import ClaimedRun, ExecutionContext
from app.workers.run_inbox import RunInbox
from app.workers.run_queries import StoredRules, StoredTraces, TicketAnswers


async def load_run(
    bench: ExecutionContext,
    claimed: ClaimedRun,
    *,
    journal: Journal,
    agent: ResolvedAgent,
    agents: Agents,
    interruption: Interruption,
    begin: Begin | None,
) -> ActiveRun:
    """All that the loop needs of a run whose agent is here."""
    record = claimed.record
    inbox = RunInbox(bench.database, bench.writer.transactions, record)
    return ActiveRun(
        record=record,
        agent=agent,
        events=journal,
        store=journal,
        interruption=interruption,
        clock=bench.clock,
        log=await _history(bench, claimed),
        next_seq=claimed.next_seq,
        start=await step_progress(bench, claimed),
        answers=TicketAnswers(bench, record),
        remembered=StoredRules(bench, record),
        traces=StoredTraces(bench, record),
        rate_limits=bench.rate_limits,
        inbox=inbox,
        tasks=inbox,
        agents=agents,
        compaction=Compaction(begin),
        redact=bench.redact,
        thread_state=claimed.thread_state,
    )


async def load_remote(
    bench: ExecutionContext,
    claimed: ClaimedRun,
    *,
    journal: Journal,
    spec: AgentSpec,
    target: str,
    interruption: Interruption,
) -> RemoteRun:
    """The same of a run whose agent is executed elsewhere."""
    record = claimed.record
    return RemoteRun(
        record=record,
        spec=spec,
        target=target,
        events=journal,
        store=journal,
        interruption=interruption,
        clock=bench.clock,
        log=await _history(bench, claimed),
        next_seq=claimed.next_seq,
        start=await step_progress(bench, claimed),
        answers=TicketAnswers(bench, record),
        inbox=RunInbox(bench.database, bench.writer.transactions, record),
        redact=bench.redact,
        thread_state=claimed.thread_state,
    )


async def _history(bench: ExecutionContext, claimed: ClaimedRun) -> list[LoggedMessage]:
    record = claimed.record
    if claimed.log is not None:
        return list(claimed.log)
    return await messages.history(bench.database.pool, record.tenant, record.thread_id)


async def step_progress(bench: ExecutionContext, claimed: ClaimedRun) -> ActivationStart:
    record, pool = claimed.record, bench.database.pool
    if record.attempt == 1:
        # Never executed before: nothing can have been left behind.
        return ActivationStart(continues=claimed.is_announced)
    calls = await tool_calls.of_open_step(pool, record.tenant, record.id)
    said = await event_log.step_progress(
        pool, record.tenant, record.thread_id, record.id, record.events_from
    )
    return ActivationStart(
        continues=claimed.previous_state is RunStatus.RUNNING and said.is_open,
        step_begun=said.begun_step == record.steps + 1,
        calls=[state for state, _ in calls],
        marked_at={state.call.id: at for state, at in calls if at is not None},
        tickets=await TicketAnswers(bench, record).unapplied(),
    )
