"""Runs whose agent isn't to be had here in their version: they rest until a worker comes that has it."""

import structlog

from app.domain.checkpoints import Checkpoint, PendingEvent
from app.domain.events.run_events import RunStart, StepEnd, StreamReset
from app.domain.events.run_finish import finish_suspended
from app.domain.runs.identity import run_identity
from app.domain.runs.runs import Waiting, waiting_reason
from app.domain.tickets.tickets import TicketStatus
from app.events.journal import Journal
from app.runtime.agent import UnknownAgentVersion
from app.workers.execution_context import ClaimedRun, ExecutionContext
from app.workers.load_run import step_progress

log = structlog.get_logger(__name__)


async def wait_for_version(
    bench: ExecutionContext, claimed: ClaimedRun, journal: Journal, missing: UnknownAgentVersion
) -> None:
    """Rest, loudly and resumable, until a worker comes that has this version of the agent."""
    log.warning("agent_version_unavailable", reason=missing.reason)
    record = claimed.record
    waiting = Waiting(waiting_reason("agent_version_unavailable"), missing.reason)
    start = await step_progress(bench, claimed)
    if not start.continues:
        journal.emit(RunStart(run_identity(record), record.lineage.parent_run_id), None)
    elif start.step_begun:
        # Begun again, under the same number, once the run goes on.
        if not start.calls:
            journal.emit(StreamReset("agent_version_unavailable"), record.steps + 1)
        journal.emit(StepEnd(), record.steps + 1)
    still_open = [ticket for ticket in start.tickets if ticket.status is TicketStatus.OPEN]
    finish = finish_suspended(record, waiting, still_open)
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
