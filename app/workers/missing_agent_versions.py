"""A run whose agent version isn't installed here is suspended until a worker has that version."""

import structlog

from app.domain.checkpoints import Checkpoint, PendingEvent
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.events.run_events import RunStart
from app.domain.events.run_finish import finish_suspended
from app.domain.events.step_events import StepEnd, StreamReset
from app.domain.runs.identity import run_identity
from app.domain.runs.runs import Waiting, waiting_reason
from app.domain.tickets.tickets import TicketStatus
from app.events.journal import Journal
from app.runtime.agent import UnknownAgentVersion
from app.workers.execution_context import ExecutionContext
from app.workers.load_run import step_progress

log = structlog.get_logger(__name__)


async def wait_for_version(
    context: ExecutionContext, claimed: ClaimedRun, journal: Journal, missing: UnknownAgentVersion
) -> None:
    """Suspend the run, with a warning in the log. The sweeper resumes it when a worker has the version."""
    log.warning("agent_version_unavailable", reason=missing.reason)
    record = claimed.record
    waiting = Waiting(waiting_reason("agent_version_unavailable"), missing.reason)
    start = await step_progress(context, claimed)
    if not start.continues:
        journal.emit(RunStart(run_identity(record), record.lineage.parent_run_id), None)
    elif start.step_begun:
        # The open step begins again, with the same number, when the run resumes.
        if not start.calls:
            journal.emit(StreamReset("agent_version_unavailable"), record.steps + 1)
        journal.emit(StepEnd(), record.steps + 1)
    still_open = [ticket for ticket in start.tickets if ticket.status is TicketStatus.OPEN]
    finish = finish_suspended(record, waiting, still_open, detail=missing.reason)
    await journal.commit(
        Checkpoint(
            tenant=record.tenant,
            thread_id=record.thread_id,
            run_id=record.id,
            attempt=record.attempt,
            next_seq=claimed.next_seq,
            messages=(),
            output=record.output,
            state=waiting,
            steps=record.steps,
            usage=record.usage,
            run_state=record.run_state or {},
            pending_events=(PendingEvent(finish, None),),
            parent_run_id=record.lineage.parent_run_id,
        )
    )
