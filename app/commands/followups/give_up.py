"""Give up a follow-up, so that no run waits for it without end.

If a child can't be started, or its end can't be reported, the parent's call or task gets an error. If a
child can't be cancelled, the request is saved and a worker ends the child. Messages that can't be forwarded
stay unread, and the report of the task's end says so. A child that can't be deleted stays. Tickets that can't
be shown on the parent's stream stay in the inbox. A remote turn that can't be aborted continues.
"""

from typing import assert_never

from app.commands.followups.report_to_parent import report_to_parent
from app.context import ServiceContext
from app.domain.children.child_runs import report_of_failure
from app.domain.children.followups import (
    AbortRemote,
    CallRunEnd,
    ChildFollowup,
    Followup,
    FollowupKind,
)
from app.domain.events.run_events import CancelRequested
from app.events.transaction import Transaction
from app.storage.children import child_runs
from app.storage.queue import deliveries, failed_followups, run_ends
from app.storage.runs import runs
from app.storage.threads import threads


async def give_up_followup(ctx: ServiceContext, followup: Followup) -> None:
    """Mark a follow-up as given up, and apply the consequences in the same commit."""
    async with ctx.events.transaction() as transaction:
        match followup:
            case ChildFollowup():
                is_undone = await _give_up_child_followup(transaction, followup)
            case AbortRemote():
                is_undone = True
            case CallRunEnd(tenant=tenant, run_id=run_id):
                is_undone = await run_ends.remove(transaction.connection, tenant, run_id)
            case _:
                assert_never(followup)
        if is_undone:
            await failed_followups.give_up(transaction.connection, followup, transaction.now)
        else:
            await failed_followups.remove(transaction.connection, followup)


async def _give_up_child_followup(transaction: Transaction, followup: ChildFollowup) -> bool:
    """Apply the consequences; False if there are none, because another follow-up reports the end."""
    connection, tenant = transaction.connection, followup.tenant
    match followup.kind:
        case FollowupKind.START:
            await _report(transaction, followup, "it could not be started")
        case FollowupKind.REPORT_TO_PARENT:
            if await child_runs.is_running(connection, tenant, followup.child_run_id):
                # It would have reported progress; another follow-up reports the end.
                return False
            await _report(transaction, followup, "it has ended, and its result can't be reported")
        case FollowupKind.CANCEL:
            await _request_cancel(transaction, followup)
        case FollowupKind.SHOW_TICKETS | FollowupKind.FORWARD_MESSAGES | FollowupKind.DELETE:
            pass
        case _:
            assert_never(followup.kind)
    return True


async def _request_cancel(transaction: Transaction, followup: ChildFollowup) -> None:
    """Save the cancel request and enqueue the child, so that a worker ends it. The child's whole row isn't
    decoded: that may be what fails."""
    connection, tenant = transaction.connection, followup.tenant
    thread_id = await runs.thread_of(connection, tenant, followup.child_run_id)
    if thread_id is None:
        return
    await threads.lock(connection, tenant, thread_id)
    child = await runs.lock_key(connection, tenant, followup.child_run_id)
    if child is None:
        return
    by, reason = f"run:{followup.parent_run_id}", "Its parent does not wait for it any more."
    if await runs.request_cancel(connection, tenant, child.run_id, by=by, reason=reason):
        transaction.emit(tenant, child.thread_id, child.run_id, CancelRequested(by, reason))
    await deliveries.enqueue(connection, child)


async def _report(transaction: Transaction, followup: ChildFollowup, why: str) -> None:
    """Report an error to the parent, without reading the child's row: that may be what fails."""
    connection, tenant = transaction.connection, followup.tenant
    known = await runs.get(connection, tenant, followup.parent_run_id)
    if known is None:
        return
    await threads.lock(connection, tenant, known.thread_id)
    parent = await runs.lock(connection, tenant, followup.parent_run_id)
    if parent is None:
        return
    waiter = await child_runs.waiter_of(
        connection, tenant, followup.parent_run_id, followup.child_run_id
    )
    report = report_of_failure(followup.child_run_id, why)
    await report_to_parent(transaction, parent, waiter, followup.child_run_id, report)
