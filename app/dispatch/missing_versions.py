"""Runs whose agent isn't to be had here in their version: they rest until a worker comes that has it."""

import structlog

from app.dispatch.bench import ClaimedRun, Workbench
from app.dispatch.loading import where_it_stood
from app.domain.checkpoints import Checkpoint, Said
from app.domain.events import RunStart, StepEnd, StreamReset
from app.domain.finishes import finish_at_rest
from app.domain.identity import run_identity
from app.domain.runs import Waiting, waiting_reason
from app.domain.tickets import TicketStatus
from app.events.journal import Journal
from app.runtime.agent import Unresolvable

log = structlog.get_logger(__name__)


async def wait_for_version(
    bench: Workbench, claimed: ClaimedRun, journal: Journal, missing: Unresolvable
) -> None:
    """Rest, loudly and resumable, until a worker comes that has this version of the agent."""
    log.warning("agent_version_unavailable", reason=missing.reason)
    record = claimed.record
    waiting = Waiting(waiting_reason("agent_version_unavailable"), missing.reason)
    start = await where_it_stood(bench, claimed)
    if not start.continues:
        journal.say(RunStart(run_identity(record), record.lineage.parent_run_id), None)
    elif start.step_begun:
        # Begun again, under the same number, once the run goes on.
        if not start.calls:
            journal.say(StreamReset("agent_version_unavailable"), record.steps + 1)
        journal.say(StepEnd(), record.steps + 1)
    still_open = [ticket for ticket in start.tickets if ticket.status is TicketStatus.OPEN]
    finish = finish_at_rest(record, waiting, still_open)
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
            said=(Said(finish, None),),
            parent_run_id=record.lineage.parent_run_id,
        )
    )
