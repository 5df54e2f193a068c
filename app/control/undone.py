"""Undone: what becomes of an errand that is given up, so that nobody waits for it for ever.

Whoever waits for a child that can't be started, or whose end can't be told, gets an error instead. A child
that can't be cancelled is marked, so that whoever executes it ends it. Messages that can't be passed on
stay unread, which is told with the end of their task; a child that can't be removed stays, and a remote
that can't be told isn't.
"""

from typing import assert_never

from app.control.desk import Desk
from app.control.reports import report
from app.domain.children import report_of_failure
from app.domain.control_events import CancelRequested
from app.domain.errands import AbortRemote, AboutChild, CallRunEnd, ChildErrand, Errand
from app.events.outgoing import Transaction
from app.storage import children, deliveries, failed_errands, run_ends, runs, threads


async def settle(desk: Desk, errand: Errand) -> None:
    """Give an errand up, together with what that means for others."""
    async with desk.outgoing.transaction() as transaction:
        match errand:
            case AboutChild():
                is_owed = await _settle(transaction, errand)
            case AbortRemote():
                is_owed = True
            case CallRunEnd(tenant=tenant, run_id=run_id):
                is_owed = await run_ends.claim(transaction.connection, tenant, run_id)
            case _:
                assert_never(errand)
        if is_owed:
            await failed_errands.give_up(transaction.connection, errand, transaction.now)
        else:
            await failed_errands.forget(transaction.connection, errand)


async def _settle(transaction: Transaction, errand: AboutChild) -> bool:
    """False when nothing is left undone by it."""
    connection, tenant = transaction.connection, errand.tenant
    match errand.kind:
        case ChildErrand.START:
            await _report(transaction, errand, "it could not be started")
        case ChildErrand.TELL_PARENT:
            if await children.is_at_work(connection, tenant, errand.child_run_id):
                # It was about to show where its child stands; the end is told by another errand.
                return False
            await _report(transaction, errand, "it has ended, and what came of it can't be told")
        case ChildErrand.CANCEL:
            await _leave_cancel_to_a_worker(transaction, errand)
        case ChildErrand.PASS_ON | ChildErrand.FORGET:
            pass
        case _:
            assert_never(errand.kind)
    return True


async def _leave_cancel_to_a_worker(transaction: Transaction, errand: AboutChild) -> None:
    """Make the request durable without reading the child's row, and have a worker end the child."""
    connection, tenant = transaction.connection, errand.tenant
    thread_id = await runs.thread_of(connection, tenant, errand.child_run_id)
    if thread_id is None:
        return
    await threads.lock(connection, tenant, thread_id)
    child = await runs.lock_key(connection, tenant, errand.child_run_id)
    if child is None:
        return
    by, reason = f"run:{errand.parent_run_id}", "Nobody waits for it any more."
    if await runs.intend_cancel(connection, tenant, child.run_id, by=by, reason=reason):
        transaction.say(tenant, child.thread_id, child.run_id, CancelRequested(by, reason))
    await deliveries.enqueue(connection, child)


async def _report(transaction: Transaction, errand: AboutChild, why: str) -> None:
    """Nothing of the child's own row: it may be what can't be read."""
    connection, tenant = transaction.connection, errand.tenant
    known = await runs.get(connection, tenant, errand.parent_run_id)
    if known is None:
        return
    await threads.lock(connection, tenant, known.thread_id)
    parent = await runs.lock(connection, tenant, errand.parent_run_id)
    if parent is None:
        return
    waiter = await children.waiter_of(connection, tenant, errand.parent_run_id, errand.child_run_id)
    said = report_of_failure(errand.child_run_id, why)
    await report(transaction, parent, waiter, errand.child_run_id, said)
