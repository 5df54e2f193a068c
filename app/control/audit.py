"""The audit: of each call that was held back, who decided what and why, and what came of it.

blocked ──► voted | refused ──► decided | expired | void ──► executed, all linked by their ticket.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.control.desk import Desk
from app.control.reading import run_not_found
from app.domain.control_events import TicketDecided, TicketExpired
from app.domain.decisions import Action, Attempt
from app.domain.events import ToolCallResumed
from app.domain.ids import CallId, RunId, TicketKey
from app.domain.json_values import Json
from app.domain.principals import Principal, Scope
from app.domain.tickets import Ticket, TicketStatus
from app.domain.times import Period
from app.storage import audit, decisions, runs, tickets
from app.storage.audit import Told
from app.storage.database import Connection

PAGE = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call once its ticket was settled."""

    status: str
    at: datetime
    event_id: int
    ran_with: Json
    """The arguments that the tool got; None when it wasn't run."""
    result: Json


@dataclass(frozen=True, slots=True)
class Case:
    """One ticket from its opening to what came of it."""

    ticket: Ticket
    attempts: Sequence[Attempt]
    outcome: Outcome | None


async def of_run(desk: Desk, principal: Principal, run_id: RunId) -> list[Case]:
    """The cases of one run, oldest first."""
    principal.require(Scope.RUNS_READ)
    async with desk.database.reading() as connection:
        if await runs.get(connection, principal.tenant, run_id) is None:
            raise run_not_found(run_id)
        found = await tickets.of_run(connection, principal.tenant, run_id)
        return await _cases(connection, principal, found)


async def export(
    desk: Desk, principal: Principal, period: Period
) -> AsyncGenerator[Sequence[Case]]:
    """The cases in which something has happened in a period, page by page; nothing is held between."""
    after: tuple[datetime, TicketKey] | None = None
    while True:
        async with desk.database.reading() as connection:
            found = await audit.page(connection, principal.tenant, period, after=after, limit=PAGE)
            cases = await _cases(connection, principal, found)
        if cases:
            yield cases
        if not found.has_more:
            return
        after = found[-1].created_at, found[-1].key


async def _cases(
    connection: Connection, principal: Principal, found: Sequence[Ticket]
) -> list[Case]:
    if not found:
        return []
    tenant = principal.tenant
    given: dict[TicketKey, list[Attempt]] = {ticket.key: [] for ticket in found}
    for attempt in await decisions.attempts(connection, tenant, list(given)):
        given[attempt.ticket].append(attempt)
    of_runs = sorted({(ticket.thread_id, ticket.run_id) for ticket in found})
    told = await audit.told(connection, tenant, of_runs)
    return [
        Case(ticket, given[ticket.key], _outcome(ticket, told[ticket.run_id])) for ticket in found
    ]


def _outcome(ticket: Ticket, told: Sequence[Told]) -> Outcome | None:
    """What was said of the call first after its ticket was settled."""
    is_settled = False
    for one in told:
        if one.event_type in (TicketDecided.event_type, TicketExpired.event_type):
            is_settled = is_settled or one.fields["id"] == ticket.key
        elif is_settled and ticket.call_id == _call_of(one):
            return Outcome(
                _status(ticket, one), one.at, one.seq, _ran_with(ticket), one.fields["result"]
            )
    return None


def _call_of(told: Told) -> CallId:
    is_resumed = told.event_type == ToolCallResumed.event_type
    return CallId(told.fields["target_id"] if is_resumed else told.fields["id"])


def _status(ticket: Ticket, told: Told) -> str:
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
