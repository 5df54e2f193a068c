"""Show the tickets of a child, and of the runs below it, on the stream of its parent.

The parent's stream is compared with the current rows and gets what is missing. So a follow-up that is executed
twice, late or in another order emits nothing twice. If the parent is itself a child, the next follow-up goes to
its parent: no transaction locks two threads.
"""

from collections.abc import Iterator
from typing import assert_never

from app.commands.tickets.decision_types import ticket_decided
from app.domain.events.agent_events import TicketEvent
from app.domain.events.ticket_events import (
    TicketDecided,
    TicketExpired,
    TicketOpened,
    TicketVoid,
)
from app.domain.ids import RunId
from app.domain.runs.runs import RunRecord
from app.domain.structs import replace
from app.domain.tickets.opening import ticket_as_opened
from app.domain.tickets.ticket_json import child_of, ticket_to_json
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.events.transaction import Transaction
from app.storage.children import child_runs
from app.storage.tickets import child_tickets
from app.storage.tickets.child_tickets import TicketChange


async def show_child_tickets(
    transaction: Transaction,
    parent: RunRecord,
    waiter: child_runs.Waiter | None,
    child_id: RunId,
    child: RunRecord | None,
) -> None:
    """Emit what the parent's stream doesn't show yet. The caller holds the locks of the parent's rows."""
    connection, tenant = transaction.connection, parent.tenant
    changes = await child_tickets.changes(
        connection,
        tenant,
        parent.id,
        child_id,
        has_ended=child is None or child.is_done,
        is_awaited=waiter is not None and not parent.is_done,
    )
    if not changes:
        return
    await child_tickets.write(connection, tenant, parent.id, child_id, changes)
    if not parent.is_done:
        for change in changes:
            for event in _events(change):
                transaction.emit(tenant, parent.thread_id, parent.id, event)
    if (above := parent.lineage.parent_run_id) is not None:
        await child_runs.show_tickets(connection, tenant, above, parent.id)


def _events(change: TicketChange) -> Iterator[TicketEvent]:
    ticket = change.ticket
    if ticket is None:
        yield TicketVoid(change.id)
        return
    child = child_of(ticket)
    if change.is_new:
        yield TicketOpened(ticket_to_json(ticket_as_opened(ticket)), child)
    match change.status:
        case TicketStatus.OPEN:
            return
        case TicketStatus.DECIDED:
            yield _decided(ticket)
        case TicketStatus.EXPIRED:
            yield TicketExpired(ticket.id, ticket.terms.on_expiry.value, child)
        case TicketStatus.VOID:
            yield TicketVoid(ticket.id, child)
        case _:
            assert_never(change.status)


def _decided(ticket: Ticket) -> TicketDecided:
    decision = ticket.decision
    assert decision is not None, "a decided ticket has its decision"
    return replace(ticket_decided(ticket, decision), child=child_of(ticket))
