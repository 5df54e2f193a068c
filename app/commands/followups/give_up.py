"""Undone: what becomes of an errand that is given up, so that nobody waits for it for ever.

Whoever waits for a child that can't be started, or whose end can't be told, gets an error instead. A child
that can't be cancelled is marked, so that whoever executes it ends it. Messages that can't be passed on
stay unread, which is told with the end of their task; a child that can't be removed stays, and a remote
that can't be told isn't.
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
from app.domain.events.command_events import CancelRequested
from app.events.transaction import Transaction
from app.storage.children import child_runs
from app.storage.queue import deliveries, failed_followups, run_ends
from app.storage.runs import runs
from app.storage.threads import threads


async def give_up_followup(ctx: ServiceContext, followup: Followup) -> None:
    """Give an errand up, together with what that means for others."""
    async with ctx.events.transaction() as transaction:
        match followup:
            case ChildFollowup():
                is_owed = await _settle(transaction, followup)
            case AbortRemote():
                is_owed = True
            case CallRunEnd(tenant=tenant, run_id=run_id):
                is_owed = await run_ends.claim(transaction.connection, tenant, run_id)
            case _:
                assert_never(followup)
        if is_owed:
            await failed_followups.give_up(transaction.connection, followup, transaction.now)
        else:
            await failed_followups.forget(transaction.connection, followup)


async def _settle(transaction: Transaction, followup: ChildFollowup) -> bool:
    """False when nothing is left undone by it."""
    connection, tenant = transaction.connection, followup.tenant
    match followup.kind:
        case FollowupKind.START:
            await _report(transaction, followup, "it could not be started")
        case FollowupKind.REPORT_TO_PARENT:
            if await child_runs.is_running(connection, tenant, followup.child_run_id):
                # It was about to show where its child stands; the end is told by another errand.
                return False
            await _report(transaction, followup, "it has ended, and what came of it can't be told")
        case FollowupKind.CANCEL:
            await _leave_cancel_to_a_worker(transaction, followup)
        case FollowupKind.FORWARD_MESSAGES | FollowupKind.FORGET:
            pass
        case _:
            assert_never(followup.kind)
    return True


async def _leave_cancel_to_a_worker(transaction: Transaction, followup: ChildFollowup) -> None:
    """Make the request durable without reading the child's row, and have a worker end the child."""
    connection, tenant = transaction.connection, followup.tenant
    thread_id = await runs.thread_of(connection, tenant, followup.child_run_id)
    if thread_id is None:
        return
    await threads.lock(connection, tenant, thread_id)
    child = await runs.lock_key(connection, tenant, followup.child_run_id)
    if child is None:
        return
    by, reason = f"run:{followup.parent_run_id}", "Nobody waits for it any more."
    if await runs.request_cancel(connection, tenant, child.run_id, by=by, reason=reason):
        transaction.emit(tenant, child.thread_id, child.run_id, CancelRequested(by, reason))
    await deliveries.enqueue(connection, child)


async def _report(transaction: Transaction, followup: ChildFollowup, why: str) -> None:
    """Nothing of the child's own row: it may be what can't be read."""
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
    said = report_of_failure(followup.child_run_id, why)
    await report_to_parent(transaction, parent, waiter, followup.child_run_id, said)
