"""Reports: what a child has come to reaches whoever waits for it, in a transaction of its parent's."""

from typing import assert_never

from app.control.answers import ticket_decided
from app.control.tasks import end_in
from app.domain.decisions import Action, Answer, Decision
from app.domain.ids import RunId
from app.domain.json_values import JsonObject
from app.domain.runs import RunRecord, RunStatus
from app.domain.tasks import Task, outcome_of_report
from app.domain.tickets import Ticket, can_go_on
from app.events.outgoing import Transaction
from app.storage import children, decisions, deliveries, tickets
from app.storage.runs import RunKey


async def report(
    transaction: Transaction,
    parent: RunRecord,
    waiter: children.Waiter | None,
    child: RunId,
    said: JsonObject,
) -> None:
    """Answer the parent's call with it, or end its task by it; the caller holds the parent's lock."""
    match waiter:
        case None:
            return
        case Ticket():
            await _answer(transaction, parent, waiter, child, said)
        case Task():
            outcome = outcome_of_report(waiter.tool_name, said)
            await end_in(transaction, parent, waiter.id, outcome)
        case _:
            assert_never(waiter)


async def _answer(
    transaction: Transaction, parent: RunRecord, ticket: Ticket, child: RunId, said: JsonObject
) -> None:
    connection, tenant = transaction.connection, parent.tenant
    decision = Decision(
        decision_id=f"child:{child}",
        answer=Answer(action=Action.RESPOND, result=said),
        subject=f"run:{child}",
        at=transaction.now,
    )
    await decisions.decide(connection, tenant, ticket.key, decision)
    decided = ticket_decided(ticket, decision)
    transaction.say(tenant, parent.thread_id, parent.id, decided)
    if (
        parent.status is RunStatus.WAITING
        and not parent.is_paused
        and can_go_on(await tickets.unsettled_of_run(connection, tenant, parent.id))
    ):
        key = RunKey(tenant, parent.thread_id, parent.id, parent.attempt)
        await deliveries.enqueue(connection, key)
