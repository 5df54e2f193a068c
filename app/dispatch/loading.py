"""Loading: a claimed run as it goes on here, from where the database says that it stood."""

from app.backends.remote_run import RemoteRun
from app.dispatch.bench import ClaimedRun, Workbench
from app.dispatch.inbox import RunInbox
from app.dispatch.questions import Answers, Remembered, Traced
from app.domain.agents import AgentSpec
from app.domain.messages import LoggedMessage
from app.domain.runs import RunStatus
from app.events.journal import Journal
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.compaction import Begin, Compaction
from app.runtime.context import ActiveRun, Start
from app.storage import events, messages, tool_calls


async def load(
    bench: Workbench,
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
    inbox = RunInbox(bench.database, bench.writer.outgoing, record)
    return ActiveRun(
        record=record,
        agent=agent,
        events=journal,
        store=journal,
        interruption=interruption,
        clock=bench.clock,
        log=await _history(bench, claimed),
        next_seq=claimed.next_seq,
        start=await where_it_stood(bench, claimed),
        answers=Answers(bench, record),
        rules=Remembered(bench, record),
        traces=Traced(bench, record),
        rate_limits=bench.rate_limits,
        inbox=inbox,
        tasks=inbox,
        agents=agents,
        compaction=Compaction(begin),
        redact=bench.redact,
        thread_state=claimed.thread_state,
    )


async def load_remote(
    bench: Workbench,
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
        start=await where_it_stood(bench, claimed),
        answers=Answers(bench, record),
        inbox=RunInbox(bench.database, bench.writer.outgoing, record),
        redact=bench.redact,
        thread_state=claimed.thread_state,
    )


async def _history(bench: Workbench, claimed: ClaimedRun) -> list[LoggedMessage]:
    record = claimed.record
    if claimed.log is not None:
        return list(claimed.log)
    return await messages.history(bench.database.hot, record.tenant, record.thread_id)


async def where_it_stood(bench: Workbench, claimed: ClaimedRun) -> Start:
    record, pool = claimed.record, bench.database.hot
    if record.attempt == 1:
        # Never executed before: nothing can have been left behind.
        return Start(continues=claimed.is_announced)
    calls = await tool_calls.of_open_step(pool, record.tenant, record.id)
    said = await events.last_borders(
        pool, record.tenant, record.thread_id, record.id, record.events_from
    )
    return Start(
        continues=claimed.was is RunStatus.RUNNING and said.is_open,
        step_begun=said.begun_step == record.steps + 1,
        calls=[state for state, _ in calls],
        marked_at={state.call.id: at for state, at in calls if at is not None},
        tickets=await Answers(bench, record).unapplied(),
    )
