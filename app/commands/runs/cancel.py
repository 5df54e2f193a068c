"""Cancel: a durable wish, and at once its fulfilment where nobody executes the run.

An executing run's owner hears of the wish (and finds it with its next heartbeat anyway); a lost
owner's run is found by the sweeper, and whoever claims it ends it. An owner whose event loop stays blocked
for a heartbeat time-out releases the run from its watchdog thread, and another worker ends it.
"""

from dataclasses import dataclass

from app.commands.idempotency import IdempotentCommand, begin_once, keep_answer
from app.commands.runs.end_idle import end_idle
from app.context import ServiceContext
from app.domain.events.command_events import CancelRequested
from app.domain.ids import RunId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.runs.terminations import Cancelled
from app.domain.threads.threads import Thread
from app.events.transaction import Transaction
from app.queries.records import run_not_found
from app.storage.runs import runs
from app.storage.threads import threads


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    run: RunRecord
    is_settled: bool


@dataclass(frozen=True, slots=True)
class InterruptedRun:
    """A run that was wished away while somebody executes it, who should hear of that."""

    run_id: RunId
    reason: str | None


async def cancel(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    *,
    reason: str | None,
    once: IdempotentCommand[CancelAnswer] | None = None,
) -> CancelAnswer:
    """Wish for a run's end; settled when it has ended, now or before."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_once(connection, principal, once)
        known = await runs.get(connection, principal.tenant, run_id)
        if known is None:
            raise run_not_found(run_id)
        thread = await threads.lock(connection, principal.tenant, known.thread_id)
        record = await runs.lock(connection, principal.tenant, run_id)
        if thread is None or record is None:
            raise run_not_found(run_id)
        interrupted = None
        if not record.is_done:
            interrupted = await request_cancel(
                transaction, thread, record, by=principal.subject, reason=reason
            )
        after = await runs.get(connection, principal.tenant, run_id)
        if after is None:
            raise run_not_found(run_id)
        answer = CancelAnswer(after, after.is_done)
        await keep_answer(connection, principal, once, answer)
    await announce_cancel(ctx, principal, interrupted)
    return answer


async def announce_cancel(
    ctx: ServiceContext, principal: Principal, interrupted: InterruptedRun | None
) -> None:
    """Interrupt the run's owner now; without this it reads the request with its next heartbeat."""
    if interrupted is not None:
        await ctx.announce_cancel(principal.tenant, interrupted.run_id, interrupted.reason)


async def request_cancel(
    transaction: Transaction, thread: Thread, record: RunRecord, *, by: str, reason: str | None
) -> InterruptedRun | None:
    """Make the request durable, and end the run here unless a worker executes it. The caller has locked
    both rows. The first request's reason counts, also for the interruption of the run's owner."""
    if record.cancel_requested_at is not None:
        reason = await runs.cancel_reason(transaction.connection, record.tenant, record.id)
    else:
        await runs.request_cancel(
            transaction.connection, record.tenant, record.id, by=by, reason=reason
        )
        requested = CancelRequested(by, reason)
        transaction.emit(record.tenant, record.thread_id, record.id, requested)
    if record.status is RunStatus.RUNNING:
        return InterruptedRun(record.id, reason)
    await end_idle(transaction, thread, record, Cancelled(reason))
    return None
