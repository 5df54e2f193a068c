"""The audit: for each call that had a ticket, who decided what and why, and the call's outcome.

opened ──► voted | refused ──► decided | expired | void ──► executed, all linked by the ticket.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.context import ServiceContext
from app.domain.events.ticket_events import TicketDecided, TicketExpired
from app.domain.events.tool_call_events import ToolCallResumed
from app.domain.ids import CallId, RunId, TicketKey
from app.domain.json_values import Json
from app.domain.principals import Principal, Scope
from app.domain.tickets.decisions import Action, StoredAttempt
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.domain.timestamps import Period
from app.queries.records import run_not_found
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.tickets import audit, decisions, tickets
from app.storage.tickets.audit import AuditedEvent

RUNS_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """The outcome of a call after its ticket was decided or expired."""

    status: str
    at: datetime
    event_id: int
    ran_with: Json
    """The arguments that the tool got; None if it wasn't executed."""
    result: Json


@dataclass(frozen=True, slots=True)
class AuditCase:
    """One ticket, its decision attempts and the outcome of its call."""

    ticket: Ticket
    attempts: Sequence[StoredAttempt]
    outcome: AuditOutcome | None


async def audit_run(ctx: ServiceContext, principal: Principal, run_id: RunId) -> list[AuditCase]:
    """The cases of one run, oldest first."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        if await runs.get(connection, principal.tenant, run_id) is None:
            raise run_not_found(run_id)
        found = await tickets.of_run(connection, principal.tenant, run_id)
        return await _cases(connection, principal, found)


async def export_audit(
    ctx: ServiceContext, principal: Principal, period: Period
) -> AsyncGenerator[Sequence[AuditCase]]:
    """The cases with an event in the period, page by page. No connection is held between pages."""
    after: tuple[datetime, TicketKey] | None = None
    while True:
        async with ctx.database.reading() as connection:
            found = await audit.page(
                connection, principal.tenant, period, after=after, limit=RUNS_PER_PAGE
            )
            cases = await _cases(connection, principal, found)
        if cases:
            yield cases
        if not found.has_more:
            return
        after = found[-1].created_at, found[-1].id


async def _cases(
    connection: Connection, principal: Principal, found: Sequence[Ticket]
) -> list[AuditCase]:
    if not found:
        return []
    tenant = principal.tenant
    given: dict[TicketKey, list[StoredAttempt]] = {ticket.id: [] for ticket in found}
    for attempt in await decisions.attempts(connection, tenant, list(given)):
        given[attempt.ticket].append(attempt)
    of_runs = sorted({(ticket.thread_id, ticket.run_id) for ticket in found})
    events = await audit.audited_events(connection, tenant, of_runs)
    return [
        AuditCase(ticket, given[ticket.id], _outcome(ticket, events[ticket.run_id]))
        for ticket in found
    ]


def _outcome(ticket: Ticket, events: Sequence[AuditedEvent]) -> AuditOutcome | None:
    """The first event of the call after its ticket was decided or expired."""
    is_closed = False
    for event in events:
        if event.event_type in (TicketDecided.event_type, TicketExpired.event_type):
            is_closed = is_closed or event.fields["id"] == ticket.id
        elif is_closed and ticket.call_id == _call_of(event):
            return AuditOutcome(
                _status(ticket, event),
                event.at,
                event.seq,
                _executed_arguments(ticket),
                event.fields["result"],
            )
    return None


def _call_of(event: AuditedEvent) -> CallId:
    is_resumed = event.event_type == ToolCallResumed.event_type
    return CallId(event.fields["target_id"] if is_resumed else event.fields["id"])


def _status(ticket: Ticket, event: AuditedEvent) -> str:
    if ticket.status is TicketStatus.EXPIRED:
        return "expired"
    match None if ticket.decision is None else ticket.decision.answer.action:
        case Action.REJECT:
            return "denied"
        case Action.CANCEL:
            return "cancelled"
        case Action.RESPOND:
            return "answered"
    if event.event_type != ToolCallResumed.event_type:
        return str(event.fields["outcome"])
    result = event.fields["result"]
    return "failed" if isinstance(result, dict) and set(result) == {"error"} else "succeeded"


def _executed_arguments(ticket: Ticket) -> Json:
    answer = None if ticket.decision is None else ticket.decision.answer
    if answer is None or answer.action not in (Action.APPROVE, Action.EDIT):
        return None
    return answer.arguments if answer.action is Action.EDIT else ticket.arguments
