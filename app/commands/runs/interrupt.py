"""Interrupt: the run that occupies a thread makes way for one that was just put in line.

The newcomer stands in line before the wish is written, so that the end of a run at rest, which is in the
same commit, admits whoever is next. A run that is to be rolled back is also taken out of the
conversation, by the commit that ends it, whoever makes that and however it ends: the next one begins
without it.
"""

from app.commands.runs.cancel import InterruptedRun, request_cancel
from app.domain.events.command_events import RollbackRequested
from app.domain.ids import RunId
from app.domain.principals import Principal
from app.domain.runs.runs import RunRecord
from app.domain.threads.threads import Thread
from app.events.transaction import Transaction
from app.storage.runs import runs


async def interrupt_occupant(
    transaction: Transaction, principal: Principal, thread: Thread, newcomer: RunId
) -> InterruptedRun | None:
    """Wish for the end of the run that occupies a thread, which the caller has locked."""
    record = await _occupant(transaction, principal, thread)
    if record is None:
        return None
    reason = f"Run {newcomer} was started in its place."
    return await request_cancel(transaction, thread, record, by=principal.subject, reason=reason)


async def roll_back_occupant(
    transaction: Transaction, principal: Principal, thread: Thread, newcomer: RunId
) -> InterruptedRun | None:
    """Wish for the end of the run that occupies a thread, as if it had never been said."""
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
