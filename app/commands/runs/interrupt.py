"""Interrupt: cancel a thread's open run because a new run was started in its place.

The new run is enqueued before the cancel is requested: the end of an idle open run, in the same commit,
admits the next queued run. With a rollback, the commit that ends the open run, for any reason, also
removes its messages from the conversation.
"""

from app.commands.runs.cancel import InterruptedRun, request_cancel
from app.domain.events.run_events import RollbackRequested
from app.domain.ids import RunId
from app.domain.principals import Principal
from app.domain.runs.runs import RunRecord
from app.domain.threads.threads import Thread
from app.events.transaction import Transaction
from app.storage.runs import runs


async def interrupt_occupant(
    transaction: Transaction, principal: Principal, thread: Thread, newcomer: RunId
) -> InterruptedRun | None:
    """Request the cancel of the thread's open run. The caller has locked the thread."""
    record = await _occupant(transaction, principal, thread)
    if record is None:
        return None
    reason = f"Run {newcomer} was started in its place."
    return await request_cancel(transaction, thread, record, by=principal.subject, reason=reason)


async def roll_back_occupant(
    transaction: Transaction, principal: Principal, thread: Thread, newcomer: RunId
) -> InterruptedRun | None:
    """Request the cancel of the thread's open run, and the removal of its messages."""
    record = await _occupant(transaction, principal, thread)
    if record is None:
        return None
    if await runs.request_rollback(transaction.connection, record.tenant, record.id, by=newcomer):
        requested = RollbackRequested(principal.subject, newcomer)
        transaction.emit(record.tenant, record.thread_id, record.id, requested)
    reason = f"Run {newcomer} was started in its place, and it was rolled back."
    return await request_cancel(transaction, thread, record, by=principal.subject, reason=reason)


async def _occupant(
    transaction: Transaction, principal: Principal, thread: Thread
) -> RunRecord | None:
    if thread.open_run_id is None:
        return None
    record = await runs.lock(transaction.connection, principal.tenant, thread.open_run_id)
    return None if record is None or record.is_done else record
