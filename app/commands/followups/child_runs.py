"""Follow-ups about child runs: start, report to the parent, cancel, forward messages, delete.

Each is one transaction on one thread. It reads the current rows first, so it may be executed twice.
"""

from typing import assert_never

from app import telemetry
from app.commands.followups.background_tasks import finish_task_in
from app.commands.followups.forward_messages import forward_messages, user_message
from app.commands.followups.report_to_parent import report_to_parent
from app.commands.followups.show_child_tickets import show_child_tickets
from app.commands.runs.cancel import cancel
from app.commands.runs.enqueue import enqueue
from app.commands.threads.threads import ChildThreads, delete_thread
from app.context import ServiceContext
from app.domain.children.background_tasks import Task, task_failed
from app.domain.children.child_runs import (
    ChildWork,
    child_progress,
    child_request,
    is_kept,
    report_of,
    work_from_json,
)
from app.domain.children.followups import ChildFollowup, FollowupKind
from app.domain.errors import Conflict, NotFound
from app.domain.events.tool_call_events import ActivitySnapshot
from app.domain.ids import CallId
from app.domain.json_values import digest
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import Done, Lineage, NewRun, RunRecord
from app.domain.tickets.tickets import Ticket
from app.events.transaction import Transaction
from app.runtime.tool_calls.delegate import PROGRESS
from app.storage.children import child_runs, child_tasks
from app.storage.runs import runs
from app.storage.threads import threads


async def run_child_followup(ctx: ServiceContext, followup: ChildFollowup) -> bool:
    """Execute a follow-up; False if it has to be retried later."""
    match followup.kind:
        case FollowupKind.START:
            await _start(ctx, followup)
        case FollowupKind.REPORT_TO_PARENT | FollowupKind.SHOW_TICKETS:
            await _report(ctx, followup)
        case FollowupKind.CANCEL:
            await _cancel(ctx, followup)
        case FollowupKind.FORWARD_MESSAGES:
            return await forward_messages(ctx, followup)
        case FollowupKind.DELETE:
            return await _delete(ctx, followup)
        case _:
            assert_never(followup.kind)
    return True


async def _start(ctx: ServiceContext, followup: ChildFollowup) -> None:
    """Create the child, unless it exists or its ticket or task is closed.

    The ticket or task is locked until commit: a parent that ends meanwhile sees the child and cancels it.
    """
    tenant = followup.tenant
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        waiter = await child_runs.waiter_of(
            connection, tenant, followup.parent_run_id, followup.child_run_id, hold=True
        )
        parent = await runs.get(connection, tenant, followup.parent_run_id)
        if waiter is None or parent is None or (work := _work_of(waiter)) is None:
            return
        if await runs.get(connection, tenant, work.run_id) is not None:
            return
        await threads.create(connection, tenant, work.thread_id, parent_thread_id=parent.thread_id)
        thread = await threads.lock(connection, tenant, work.thread_id)
        if thread is None:
            raise RuntimeError(f"thread {work.thread_id} can't be created")
        child = _child_of(parent, waiter.call_id, work)
        await enqueue(ctx, transaction, thread, child, deliver=True)
        if isinstance(waiter, Task):
            await child_tasks.mark_begun(connection, tenant, waiter.id, transaction.now)
            if waiter.unread_messages:
                await child_runs.forward_messages(connection, tenant, parent.id, work.run_id)
    telemetry.runs_started.labels(work.agent_id).inc()


def _work_of(waiter: child_runs.Waiter) -> ChildWork | None:
    """The work that isn't started yet; a started task has none, even if its child was deleted since."""
    match waiter:
        case Ticket(evidence=evidence):
            return work_from_json(evidence or {})
        case Task():
            return waiter.child if waiter.attempt == 0 else None
        case _:
            assert_never(waiter)


def _child_of(parent: RunRecord, call_id: CallId | None, work: ChildWork) -> NewRun:
    """The child's run. It has the parent's `started_by`, so that a person can't approve their own calls
    through a child."""
    message = user_message(work.prompt)
    return NewRun(
        tenant=parent.tenant,
        id=work.run_id,
        thread_id=work.thread_id,
        agent_id=work.agent_id,
        agent_version=work.agent_version,
        messages=(message,),
        request={**child_request(work, parent.request), "input_message_ids": [message.id]},
        request_digest=digest(["child", work.run_id]),
        metadata={},
        started_by=parent.started_by,
        lineage=Lineage(
            root_run_id=parent.lineage.root_run_id,
            parent_run_id=parent.id,
            parent_thread_id=parent.thread_id,
            parent_call_id=call_id,
            depth=work.depth,
        ),
    )


async def _report(ctx: ServiceContext, followup: ChildFollowup) -> None:
    """Update the parent's stream: the child's progress and the tickets below it. After the child's end, report
    its result to the parent.
    """
    tenant = followup.tenant
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        known = await runs.get(connection, tenant, followup.parent_run_id)
        if known is None:
            return
        await threads.lock(connection, tenant, known.thread_id)
        parent = await runs.lock(connection, tenant, followup.parent_run_id)
        waiter = await child_runs.waiter_of(
            connection, tenant, followup.parent_run_id, followup.child_run_id
        )
        child = await runs.get(connection, tenant, followup.child_run_id)
        if parent is None:
            return
        if followup.kind is FollowupKind.SHOW_TICKETS:
            await show_child_tickets(transaction, parent, waiter, followup.child_run_id, child)
            return
        if child is None:
            await show_child_tickets(transaction, parent, waiter, followup.child_run_id, child)
            await _was_deleted(transaction, parent, waiter)
            return
        if waiter is not None and not parent.is_done:
            call_id = waiter.call_id or ""
            shown = child_progress(child, call_id, waiter.tool_name)
            snapshot = ActivitySnapshot(call_id, PROGRESS, shown, True)
            transaction.emit(tenant, parent.thread_id, parent.id, snapshot)
        await show_child_tickets(transaction, parent, waiter, child.id, child)
        if isinstance(child.state, Done):
            report = report_of(child, child.state)
            await report_to_parent(transaction, parent, waiter, child.id, report)
            if not is_kept(child):
                await child_runs.delete(connection, tenant, parent.id, child.id)


async def _was_deleted(
    transaction: Transaction, parent: RunRecord, waiter: child_runs.Waiter | None
) -> None:
    if isinstance(waiter, Task) and waiter.attempt > 0:
        await finish_task_in(
            transaction, parent, waiter.id, task_failed("the agent's run has been deleted")
        )


async def _cancel(ctx: ServiceContext, followup: ChildFollowup) -> None:
    try:
        await cancel(
            ctx,
            _parent(followup),
            followup.child_run_id,
            reason="Its parent does not wait for it any more.",
        )
    except NotFound:
        return


async def _delete(ctx: ServiceContext, followup: ChildFollowup) -> bool:
    """Delete a child that must not be kept; False while runs that it has started are active."""
    async with ctx.database.reading() as connection:
        child = await runs.get(connection, followup.tenant, followup.child_run_id)
    if child is None:
        return True
    try:
        await delete_thread(ctx, _parent(followup), child.thread_id, ChildThreads.CASCADE)
    except NotFound:
        return True
    except Conflict:
        return False
    return True


def _parent(followup: ChildFollowup) -> Principal:
    return Principal(followup.tenant, f"run:{followup.parent_run_id}", frozenset(Scope))
