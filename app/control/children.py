"""Children: started for their parents, cancelled with them, and told of when they end or rest.

Each of these is an errand: one transaction of one thread, which looks at how things stand by then and may
be carried out twice.
"""

from typing import assert_never

from app import telemetry
from app.clock import new_id
from app.control.cancel import cancel
from app.control.desk import Desk
from app.control.line import queue_up
from app.control.threads import Children, delete
from app.domain.children import (
    ChildWork,
    child_request,
    is_kept,
    progress_of,
    report_of,
    work_from_json,
)
from app.domain.decisions import Action, Answer, Decision
from app.domain.errands import AboutChild, ChildErrand
from app.domain.errors import Conflict, NotFound
from app.domain.events import ActivitySnapshot, TicketDecided
from app.domain.ids import MessageId
from app.domain.json_values import digest
from app.domain.messages import Message, Role, Text
from app.domain.principals import Principal, Scope
from app.domain.runs import Done, Lineage, NewRun, RunRecord, RunStatus
from app.domain.tickets import Ticket
from app.events.outgoing import Transaction
from app.runtime.delegating import PROGRESS
from app.storage import children, deliveries, runs, threads, tickets
from app.storage.runs import RunKey


async def run_child_errand(desk: Desk, errand: AboutChild) -> bool:
    """Carry out an errand; False when it should be tried again a little later."""
    match errand.kind:
        case ChildErrand.START:
            await _start(desk, errand)
        case ChildErrand.TELL_PARENT:
            await _tell(desk, errand)
        case ChildErrand.CANCEL:
            await _cancel(desk, errand)
        case ChildErrand.FORGET:
            return await _forget(desk, errand)
        case _:
            assert_never(errand.kind)
    return True


async def _start(desk: Desk, errand: AboutChild) -> None:
    """Create the child, unless it is there or nobody waits for it any more.

    Its ticket is held meanwhile: a parent that ends now comes after the child, and cancels it.
    """
    tenant = errand.tenant
    async with desk.outgoing.transaction() as transaction:
        connection = transaction.connection
        ticket = await children.ticket_of_child(
            connection, tenant, errand.parent_run_id, errand.child_run_id, hold=True
        )
        parent = await runs.get(connection, tenant, errand.parent_run_id)
        if ticket is None or parent is None:
            return
        work = work_from_json(ticket.evidence or {})
        if await runs.get(connection, tenant, work.run_id) is not None:
            return
        await threads.create(connection, tenant, work.thread_id, parent_thread_id=parent.thread_id)
        thread = await threads.lock(connection, tenant, work.thread_id)
        if thread is None:
            raise RuntimeError(f"thread {work.thread_id} can't be created")
        child = _child_of(parent, ticket, work)
        await queue_up(desk, transaction, thread, child, deliver=True)
    telemetry.runs_started.labels(work.agent_id).inc()


def _child_of(parent: RunRecord, ticket: Ticket, work: ChildWork) -> NewRun:
    """Started by whoever has started its parent: nobody can approve their own wishes by a detour."""
    message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text(work.prompt),))
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
            parent_call_id=ticket.call_id,
            depth=work.depth,
        ),
    )


async def _tell(desk: Desk, errand: AboutChild) -> None:
    """Show a child's standing on its parent's stream; its end is the answer that the parent waits for."""
    tenant = errand.tenant
    async with desk.outgoing.transaction() as transaction:
        connection = transaction.connection
        known = await runs.get(connection, tenant, errand.parent_run_id)
        if known is None:
            return
        await threads.lock(connection, tenant, known.thread_id)
        parent = await runs.lock(connection, tenant, errand.parent_run_id)
        ticket = await children.ticket_of_child(
            connection, tenant, errand.parent_run_id, errand.child_run_id
        )
        child = await runs.get(connection, tenant, errand.child_run_id)
        if parent is None or ticket is None or child is None:
            return
        shown = progress_of(child, ticket.call_id or "", ticket.tool_name)
        snapshot = ActivitySnapshot(ticket.call_id or "", PROGRESS, shown, True)
        transaction.say(tenant, parent.thread_id, parent.id, snapshot)
        if isinstance(child.state, Done):
            await _answer(transaction, parent, ticket, child, child.state)


async def _answer(
    transaction: Transaction, parent: RunRecord, ticket: Ticket, child: RunRecord, done: Done
) -> None:
    connection, tenant = transaction.connection, parent.tenant
    decision = Decision(
        decision_id=f"child:{child.id}",
        answer=Answer(action=Action.RESPOND, result=report_of(child, done)),
        subject=f"run:{child.id}",
        at=transaction.now,
    )
    await tickets.decide(connection, tenant, ticket.key, decision)
    event = TicketDecided(
        id=ticket.key,
        ticket_id=ticket.ticket_id,
        decision_id=decision.decision_id,
        action=decision.answer.action.value,
        decided_by=decision.subject,
    )
    transaction.say(tenant, parent.thread_id, parent.id, event)
    if parent.status is RunStatus.WAITING:
        key = RunKey(tenant, parent.thread_id, parent.id, parent.attempt)
        await deliveries.enqueue(connection, key)
    if not is_kept(child):
        await children.forget(connection, tenant, parent.id, child.id)


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
