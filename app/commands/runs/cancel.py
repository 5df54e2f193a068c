"""Cancel: a durable request on the run's row. A run that no worker executes ends in the same commit.

A hint interrupts the owner of an executing run; without it, the owner's next heartbeat reads the request.
The sweeper enqueues the run of a dead owner, and the worker that claims it ends it. If an owner's
event loop stays blocked for a heartbeat time-out, its watchdog thread releases the run.
"""

from msgspec import Struct

from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.commands.runs.end_idle import end_idle
from app.context import ServiceContext
from app.domain.events.run_events import CancelRequested
from app.domain.ids import RunId, Tenant
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.runs.terminations import Cancelled
from app.domain.threads.threads import Thread
from app.events.transaction import Transaction
from app.queries.records import found_run, run_not_found
from app.storage.runs import runs
from app.storage.threads import threads


class InterruptedRun(Struct, frozen=True):
    """An executing run whose cancel was requested: its owner should get a hint."""

    tenant: Tenant
    run_id: RunId
    reason: str | None


async def cancel(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    *,
    reason: str | None,
    once: IdempotentCommand[RunRecord] | None = None,
) -> RunRecord:
    """Request a run's cancel. Returns the run; it is done unless a worker executes it."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_idempotent(connection, principal, once)
        known = await found_run(connection, principal.tenant, run_id)
        thread = await threads.lock(connection, principal.tenant, known.thread_id)
        record = await runs.lock(connection, principal.tenant, run_id)
        if thread is None or record is None:
            raise run_not_found(run_id)
        interrupted = None
        if not record.is_done:
            interrupted = await request_cancel(
                transaction, thread, record, by=principal.subject, reason=reason
            )
        after = await found_run(connection, principal.tenant, run_id)
        await store_response(connection, principal, once, after)
    await announce_cancel(ctx, interrupted)
    return after


async def announce_cancel(ctx: ServiceContext, interrupted: InterruptedRun | None) -> None:
    """Interrupt the run's owner now; without this it reads the request with its next heartbeat."""
    if interrupted is not None:
        await ctx.send_cancel_hint(interrupted.tenant, interrupted.run_id, interrupted.reason)


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
        return InterruptedRun(record.tenant, record.id, reason)
    await end_idle(transaction, thread, record, Cancelled(reason))
    return None
