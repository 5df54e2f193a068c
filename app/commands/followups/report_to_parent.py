"""Reports: what a child has come to reaches whoever waits for it, in a transaction of its parent's."""

from typing import assert_never

from app.commands.followups.background_tasks import finish_task_in
from app.commands.tickets.decision_types import ticket_decided
from app.domain.children.background_tasks import Task, outcome_of_report
from app.domain.ids import RunId
from app.domain.json_values import JsonObject
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.domain.tickets.tickets import Ticket, can_resume
from app.events.transaction import Transaction
from app.storage.children import child_runs
from app.storage.queue import deliveries
from app.storage.runs.runs import RunKey
from app.storage.tickets import decisions, tickets


async def report_to_parent(
    transaction: Transaction,
    parent: RunRecord,
    waiter: child_runs.Waiter | None,
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
            await finish_task_in(transaction, parent, waiter.id, outcome)
        case _:
            assert_never(waiter)


async def _answer(
    transaction: Transaction, parent: RunRecord, ticket: Ticket, child: RunId, said: JsonObject
) -> None:
    connection, tenant = transaction.connection, parent.tenant
    decision = Decision(
        decision_id=f"child:{child}",
        answer=DecisionAnswer(action=Action.RESPOND, result=said),
        subject=f"run:{child}",
        at=transaction.now,
    )
    await decisions.decide(connection, tenant, ticket.id, decision)
    decided = ticket_decided(ticket, decision)
    transaction.emit(tenant, parent.thread_id, parent.id, decided)
    if (
        parent.status is RunStatus.WAITING
        and not parent.is_paused
        and can_resume(await tickets.unsettled_of_run(connection, tenant, parent.id))
    ):
        key = RunKey(tenant, parent.thread_id, parent.id, parent.attempt)
        await deliveries.enqueue(connection, key)
