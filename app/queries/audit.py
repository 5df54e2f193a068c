"""The audit: of each call that was held back, who decided what and why, and what came of it.

blocked ──► voted | refused ──► decided | expired | void ──► executed, all linked by their ticket.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.context import ServiceContext
from app.domain.events.command_events import TicketDecided, TicketExpired
from app.domain.events.run_events import ToolCallResumed
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
    """What became of a call once its ticket was settled."""

    status: str
    at: datetime
    event_id: int
    ran_with: Json
    """The arguments that the tool got; None when it wasn't run."""
    result: Json


@dataclass(frozen=True, slots=True)
class AuditCase:
    """One ticket from its opening to what came of it."""

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
    """The cases in which something has happened in a period, page by page; nothing is held between."""
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
    told = await audit.audited_events(connection, tenant, of_runs)
    return [
        AuditCase(ticket, given[ticket.id], _outcome(ticket, told[ticket.run_id]))
        for ticket in found
    ]


def _outcome(ticket: Ticket, told: Sequence[AuditedEvent]) -> AuditOutcome | None:
    """What was said of the call first after its ticket was settled."""
    is_settled = False
    for one in told:
        if one.event_type in (TicketDecided.event_type, TicketExpired.event_type):
            is_settled = is_settled or one.fields["id"] == ticket.id
        elif is_settled and ticket.call_id == _call_of(one):
            return AuditOutcome(
                _status(ticket, one), one.at, one.seq, _ran_with(ticket), one.fields["result"]
            )
    return None


def _call_of(told: AuditedEvent) -> CallId:
    is_resumed = told.event_type == ToolCallResumed.event_type
    return CallId(told.fields["target_id"] if is_resumed else told.fields["id"])


def _status(ticket: Ticket, told: AuditedEvent) -> str:
    if ticket.status is TicketStatus.EXPIRED:
        return "expired"
    match None if ticket.decision is None else ticket.decision.answer.action:
        case Action.REJECT:
            return "denied"
        case Action.CANCEL:
            return "cancelled"
        case Action.RESPOND:
            return "answered"
    if told.event_type != ToolCallResumed.event_type:
        return str(told.fields["outcome"])
    result = told.fields["result"]
    return "failed" if isinstance(result, dict) and set(result) == {"error"} else "succeeded"


def _ran_with(ticket: Ticket) -> Json:
    answer = None if ticket.decision is None else ticket.decision.answer
    if answer is None or answer.action not in (Action.APPROVE, Action.EDIT):
        return None
    return answer.arguments if answer.action is Action.EDIT else ticket.arguments
