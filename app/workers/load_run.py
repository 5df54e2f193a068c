"""Load a claimed run from the database, so that its execution continues where the last commit ended."""

from app.backends.remote.run import RemoteRun
from app.commands.tool_owner import ToolOwner
from app.domain.agents.specs import AgentSpec
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.claims.stored_progress import StoredProgress
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.threads.messages import LoggedMessage
from app.events.journal import Journal
from app.runtime.active_run import ActiveRun
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.compaction.compaction import Compaction, StartTask
from app.runtime.run_session import ActivationStart
from app.storage.checkpoints import loading
from app.workers.execution_context import ExecutionContext
from app.workers.files.run_files import RunFiles
from app.workers.files.tool_files import StoredToolFiles
from app.workers.run_inbox import RunInbox
from app.workers.run_queries import StoredCrashEvidence, StoredRules, TicketAnswers
from app.workers.tool_memory import StoredMemories


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
    """Load everything that the loop needs to execute a run of a local agent."""
    record = claimed.record
    log, start = await _stored(context, claimed)
    inbox = RunInbox(context.database, context.writer.transactions, record)
    return ActiveRun(
        record=record,
        agent=agent,
        events=journal,
        store=journal,
        interruption=interruption,
        clock=context.clock,
        log=log,
        next_seq=claimed.next_seq,
        start=start,
        answers=TicketAnswers(context, record),
        remembered=StoredRules(context, record),
        crash_evidence=StoredCrashEvidence(context, record),
        rate_limits=context.rate_limits,
        max_answer_bytes=context.max_answer_bytes,
        files=_files(context, record),
        tool_files=_tool_files(context, record),
        memories=_memories(context, record),
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
    """Load everything that the loop needs to execute a run of a remote agent."""
    record = claimed.record
    log, start = await _stored(context, claimed)
    return RemoteRun(
        record=record,
        spec=spec,
        target=target,
        events=journal,
        store=journal,
        interruption=interruption,
        clock=context.clock,
        log=log,
        next_seq=claimed.next_seq,
        start=start,
        answers=TicketAnswers(context, record),
        inbox=RunInbox(context.database, context.writer.transactions, record),
        files=_files(context, record),
        artifact_files=_tool_files(context, record),
        redact=context.redact,
        thread_state=claimed.thread_state,
    )


def _files(context: ExecutionContext, record: RunRecord) -> RunFiles:
    return RunFiles(
        context.database, context.files, record.tenant, context.max_inline_bytes, context.chunks
    )


def _tool_files(context: ExecutionContext, record: RunRecord) -> StoredToolFiles:
    return StoredToolFiles(
        context.database,
        context.writer.transactions,
        _tool_owner(record),
        context.max_file_bytes,
        context.chunks,
    )


def _memories(context: ExecutionContext, record: RunRecord) -> StoredMemories:
    return StoredMemories(context.database, _tool_owner(record), context.memory)


def _tool_owner(record: RunRecord) -> ToolOwner:
    return ToolOwner(record.tenant, record.id, record.thread_id, record.attempt)


async def _stored(
    context: ExecutionContext, claimed: ClaimedRun
) -> tuple[list[LoggedMessage], ActivationStart]:
    """The log, and where the execution continues. Messages that this process has read before aren't read again."""
    record = claimed.record
    # An attempt before this one may have left a step, a call or a ticket.
    is_first = record.attempt == 1
    if claimed.log is not None and is_first:
        return list(claimed.log), ActivationStart(continues=claimed.is_announced)
    if (read := claimed.progress) is not None:
        known = context.histories.log_with(record, read)
        if known is not None:
            return known, _start_of(claimed, read)
    log, stored = await context.histories.load(
        context.database.pool, record, with_progress=not is_first
    )
    if is_first:
        return log, ActivationStart(continues=claimed.is_announced)
    return log, _start_of(claimed, stored)


def _start_of(claimed: ClaimedRun, stored: StoredProgress) -> ActivationStart:
    record = claimed.record
    return ActivationStart(
        continues=claimed.previous_state is RunStatus.RUNNING and stored.is_open,
        step_begun=stored.begun_step == record.steps + 1,
        calls=[state for state, _ in stored.calls],
        marked_at={state.call.id: at for state, at in stored.calls if at is not None},
        tickets=stored.tickets,
    )


async def step_progress(context: ExecutionContext, claimed: ClaimedRun) -> ActivationStart:
    """Where the execution continues, without the log."""
    if claimed.record.attempt == 1:
        return ActivationStart(continues=claimed.is_announced)
    stored = await loading.load(context.database.pool, claimed.record, with_log=False)
    return _start_of(claimed, stored)
