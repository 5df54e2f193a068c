"""The audit: for each call that had a ticket, who decided what and why, and the call's outcome.

opened ──► voted | refused ──► decided | expired | void ──► executed, all linked by the ticket.
"""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

from msgspec import Struct

from app.context import ServiceContext
from app.domain.events.ticket_events import TicketDecided, TicketExpired
from app.domain.ids import CallId, RunId, TicketKey
from app.domain.json_values import Json
from app.domain.principals import Principal, Scope
from app.domain.slices import PageRequest, Slice
from app.domain.tickets.decisions import Action, StoredAttempt
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.domain.timestamps import Period
from app.queries.records import found_run
from app.storage.postgres.database import Connection
from app.storage.tickets import audit, decisions
from app.storage.tickets.audit import AuditedEvent

TICKETS_PER_PAGE = 100


class AuditOutcome(Struct, frozen=True):
    """The outcome of a call after its ticket was decided or expired."""

    outcome: str | None
    """None if the call waits for a further ticket."""
    at: datetime
    event_id: int
    executed_arguments: Json
    """The arguments that the tool got; None if it wasn't executed."""
    result: Json


class AuditCase(Struct, frozen=True):
    """One ticket, its decision attempts and the outcome of its call."""

    ticket: Ticket
    attempts: Sequence[StoredAttempt]
    outcome: AuditOutcome | None


async def audit_run(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    ticket: TicketKey | None,
    requested: PageRequest,
) -> Slice[AuditCase]:
    """A page of the cases of one run, or only that of one ticket."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        await found_run(connection, principal.tenant, run_id)
        found = await audit.page_of_run(connection, principal.tenant, run_id, ticket, requested)
        return await _cases(connection, principal, found)


async def export_audit(
    ctx: ServiceContext, principal: Principal, period: Period
) -> AsyncGenerator[Sequence[AuditCase]]:
    """The cases with an event in the period, page by page. No connection is held between pages."""
    after: tuple[datetime, TicketKey] | None = None
    while True:
        async with ctx.database.reading() as connection:
            found = await audit.page(
                connection, principal.tenant, period, after=after, limit=TICKETS_PER_PAGE
            )
            cases = await _cases(connection, principal, found)
        if cases:
            yield cases
        if not cases.has_more:
            return
        last = cases[-1].ticket
        after = last.created_at, last.id


async def _cases(
    connection: Connection, principal: Principal, found: Slice[Ticket]
) -> Slice[AuditCase]:
    """The cases of these tickets, as many as fit into a page."""
    tenant = principal.tenant
    found = await audit.as_fit(connection, tenant, found)
    if not found:
        return Slice((), has_more=False)
    given: dict[TicketKey, list[StoredAttempt]] = {ticket.id: [] for ticket in found}
    for attempt in await decisions.attempts(connection, tenant, list(given)):
        given[attempt.ticket].append(attempt)
    events = await audit.audited_events(connection, tenant, found)
    cases = tuple(
        AuditCase(ticket, given[ticket.id], _outcome(ticket, events[ticket.run_id]))
        for ticket in found
    )
    return Slice(cases, found.has_more)


def _outcome(ticket: Ticket, events: Sequence[AuditedEvent]) -> AuditOutcome | None:
    """The first event of the call after its ticket was decided or expired."""
    is_closed = False
    for event in events:
        if event.event_type in (TicketDecided.event_type, TicketExpired.event_type):
            is_closed = is_closed or event.fields["ticket_id"] == ticket.id
        elif is_closed and ticket.call_id == _call_of(event):
            return AuditOutcome(
                _outcome_word(ticket, event),
                event.at,
                event.seq,
                _executed_arguments(ticket),
                event.fields["result"],
            )
    return None


def _call_of(event: AuditedEvent) -> CallId:
    return CallId(event.fields["tool_call_id"])


def _outcome_word(ticket: Ticket, event: AuditedEvent) -> str | None:
    if ticket.status is TicketStatus.EXPIRED:
        return "expired"
    match None if ticket.decision is None else ticket.decision.answer.action:
        case Action.REJECT:
            return "rejected"
        case Action.CANCEL:
            return "cancelled"
        case Action.RESPOND:
            return "answered"
    outcome: str | None = event.fields["result"].get("outcome")
    return outcome


def _executed_arguments(ticket: Ticket) -> Json:
    answer = None if ticket.decision is None else ticket.decision.answer
    if answer is None or answer.action not in (Action.APPROVE, Action.EDIT):
        return None
    return answer.arguments if answer.action is Action.EDIT else ticket.arguments
