"""Children: started for their parents, cancelled with them, and told of when they end or rest.

Each of these is an errand: one transaction of one thread, which looks at how things stand by then and may
be carried out twice.
"""

from typing import assert_never

from app import telemetry
from app.control.cancel import cancel
from app.control.desk import Desk
from app.control.line import queue_up
from app.control.pass_on import pass_on, user_message
from app.control.reports import report
from app.control.tasks import end_in
from app.control.threads import Children, delete
from app.domain.children import (
    ChildWork,
    child_request,
    is_kept,
    progress_of,
    report_of,
    work_from_json,
)
from app.domain.errands import AboutChild, ChildErrand
from app.domain.errors import Conflict, NotFound
from app.domain.events import ActivitySnapshot
from app.domain.ids import CallId
from app.domain.json_values import digest
from app.domain.principals import Principal, Scope
from app.domain.runs import Done, Lineage, NewRun, RunRecord
from app.domain.tasks import Task, failed
from app.domain.tickets import Ticket
from app.events.outgoing import Transaction
from app.runtime.delegating import PROGRESS
from app.storage import child_tasks, children, runs, threads


async def run_child_errand(desk: Desk, errand: AboutChild) -> bool:
    """Carry out an errand; False when it should be tried again a little later."""
    match errand.kind:
        case ChildErrand.START:
            await _start(desk, errand)
        case ChildErrand.TELL_PARENT:
            await _tell(desk, errand)
        case ChildErrand.CANCEL:
            await _cancel(desk, errand)
        case ChildErrand.PASS_ON:
            return await pass_on(desk, errand)
        case ChildErrand.FORGET:
            return await _forget(desk, errand)
        case _:
            assert_never(errand.kind)
    return True


async def _start(desk: Desk, errand: AboutChild) -> None:
    """Create the child, unless it is there or nobody waits for it any more.

    Its ticket or task is held meanwhile: a parent that ends now comes after the child, and cancels it.
    """
    tenant = errand.tenant
    async with desk.outgoing.transaction() as transaction:
        connection = transaction.connection
        waiter = await children.waiter_of(
            connection, tenant, errand.parent_run_id, errand.child_run_id, hold=True
        )
        parent = await runs.get(connection, tenant, errand.parent_run_id)
        if waiter is None or parent is None or (work := _work_of(waiter)) is None:
            return
        if await runs.get(connection, tenant, work.run_id) is not None:
            return
        await threads.create(connection, tenant, work.thread_id, parent_thread_id=parent.thread_id)
        thread = await threads.lock(connection, tenant, work.thread_id)
        if thread is None:
            raise RuntimeError(f"thread {work.thread_id} can't be created")
        child = _child_of(parent, waiter.call_id, work)
        await queue_up(desk, transaction, thread, child, deliver=True)
        if isinstance(waiter, Task):
            await child_tasks.mark_begun(connection, tenant, waiter.id, transaction.now)
            if waiter.unread_messages:
                await children.pass_on(connection, tenant, parent.id, work.run_id)
    telemetry.runs_started.labels(work.agent_id).inc()


def _work_of(waiter: children.Waiter) -> ChildWork | None:
    """What is still to be begun; the child of a task that has begun may have been deleted since."""
    match waiter:
        case Ticket(evidence=evidence):
            return work_from_json(evidence or {})
        case Task():
            return waiter.child if waiter.attempt == 0 else None
        case _:
            assert_never(waiter)


def _child_of(parent: RunRecord, call_id: CallId | None, work: ChildWork) -> NewRun:
    """Started by whoever has started its parent: nobody can approve their own wishes by a detour."""
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


async def _tell(desk: Desk, errand: AboutChild) -> None:
    """Show a child's standing on its parent's stream; its end is what the parent waits for."""
    tenant = errand.tenant
    async with desk.outgoing.transaction() as transaction:
        connection = transaction.connection
        known = await runs.get(connection, tenant, errand.parent_run_id)
        if known is None:
            return
        await threads.lock(connection, tenant, known.thread_id)
        parent = await runs.lock(connection, tenant, errand.parent_run_id)
        waiter = await children.waiter_of(
            connection, tenant, errand.parent_run_id, errand.child_run_id
        )
        child = await runs.get(connection, tenant, errand.child_run_id)
        if parent is None:
            return
        if child is None:
            await _was_deleted(transaction, parent, waiter)
            return
        if waiter is not None and not parent.is_done:
            call_id = waiter.call_id or ""
            shown = progress_of(child, call_id, waiter.tool_name)
            snapshot = ActivitySnapshot(call_id, PROGRESS, shown, True)
            transaction.say(tenant, parent.thread_id, parent.id, snapshot)
        if isinstance(child.state, Done):
            said = report_of(child, child.state)
            await report(transaction, parent, waiter, child.id, said)
            if not is_kept(child):
                await children.forget(connection, tenant, parent.id, child.id)


async def _was_deleted(
    transaction: Transaction, parent: RunRecord, waiter: children.Waiter | None
) -> None:
    if isinstance(waiter, Task) and waiter.attempt > 0:
        await end_in(transaction, parent, waiter.id, failed("the agent's run has been deleted"))


async def _cancel(desk: Desk, errand: AboutChild) -> None:
    try:
        await cancel(
            desk, _parent(errand), errand.child_run_id, reason="Nobody waits for it any more."
        )
    except NotFound:
        return


async def _forget(desk: Desk, errand: AboutChild) -> bool:
    """Remove all of a child that isn't to be kept; not before what it has begun itself is over."""
    async with desk.database.reading() as connection:
        child = await runs.get(connection, errand.tenant, errand.child_run_id)
    if child is None:
        return True
    try:
        await delete(desk, _parent(errand), child.thread_id, Children.CASCADE)
    except NotFound:
        return True
    except Conflict:
        return False
    return True


def _parent(errand: AboutChild) -> Principal:
    return Principal(errand.tenant, f"run:{errand.parent_run_id}", frozenset(Scope))
