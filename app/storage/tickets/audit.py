"""The audit of decisions, read from tickets, decisions and events."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Text, cast, exists, func, or_, select, tuple_
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.events.ticket_events import TicketDecided, TicketExpired
from app.domain.events.tool_call_events import ToolCallDone, ToolCallResumed
from app.domain.ids import CallId, RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import parsed
from app.domain.slices import PageRequest, Slice
from app.domain.tickets.tickets import Ticket
from app.domain.timestamps import Period
from app.storage.codec import Row
from app.storage.page_rows import MAX_PAGE_BYTES, page_of, page_rows
from app.storage.postgres.database import Connection
from app.storage.tables import decisions, events, tickets
from app.storage.tickets.tickets import ticket_of, with_winner

AUDITED_EVENTS = (
    TicketDecided.event_type,
    TicketExpired.event_type,
    ToolCallDone.event_type,
    ToolCallResumed.event_type,
)


NO_THREAD = ThreadId("00000000-0000-0000-0000-000000000000")
"""Sorts before every thread id."""
EVENTS_PER_READ = 500


class AuditedEvent(Struct, frozen=True):
    """An event about a call: its ticket was decided or expired, or the call finished."""

    seq: int
    at: datetime
    event_type: str
    fields: dict[str, Any]


async def page(
    connection: Connection,
    tenant: Tenant,
    period: Period,
    *,
    after: tuple[datetime, TicketKey] | None,
    limit: int,
) -> Slice[Ticket]:
    """Tickets that were opened, decided, expired or applied in a period, oldest first."""
    conditions = [tickets.c.tenant == tenant, tickets.c.created_at < period.end]
    if period.begin is not None:
        in_period = decisions.alias("in_period")
        conditions.append(
            or_(
                tickets.c.created_at >= period.begin,
                tickets.c.updated_at >= period.begin,
                tickets.c.applied_at >= period.begin,
                exists().where(
                    in_period.c.tenant == tickets.c.tenant,
                    in_period.c.ticket == tickets.c.id,
                    in_period.c.at >= period.begin,
                ),
            )
        )
    if after is not None:
        conditions.append(tuple_(tickets.c.created_at, tickets.c.id) > after)
    return await page_rows(
        connection,
        with_winner().where(*conditions),
        ticket_of,
        by=("created_at", "id"),
        descending=False,
        limit=limit,
    )


async def page_of_run(
    connection: Connection,
    tenant: Tenant,
    run_id: RunId,
    ticket: TicketKey | None,
    requested: PageRequest,
) -> Slice[Ticket]:
    """The tickets of a run by creation, or only this one."""
    statement = with_winner().where(tickets.c.tenant == tenant, tickets.c.run_id == run_id)
    if ticket is not None:
        statement = statement.where(tickets.c.id == ticket)
    return await page_of(connection, statement, ticket_of, requested)


async def as_fit(connection: Connection, tenant: Tenant, found: Slice[Ticket]) -> Slice[Ticket]:
    """The first of these tickets whose decisions and results fit into a page, but at least one."""
    if not found:
        return found
    of_tickets, of_calls = await _sizes(connection, tenant, found)
    size = 0
    for number, ticket in enumerate(found):
        size += of_tickets.get(ticket.id, 0) + of_calls.get((ticket.run_id, ticket.call_id), 0)
        if size > MAX_PAGE_BYTES and number:
            return Slice(found.items[:number], has_more=True)
    return found


async def _sizes(
    connection: Connection, tenant: Tenant, found: Sequence[Ticket]
) -> tuple[dict[TicketKey, int], dict[tuple[RunId, CallId | None], int]]:
    """The bytes of all decisions by ticket, and of the results by call."""
    sent = await connection.execute(
        select(decisions.c.ticket, func.sum(func.octet_length(cast(decisions.c.payload, Text))))
        .where(
            decisions.c.tenant == tenant, decisions.c.ticket.in_([ticket.id for ticket in found])
        )
        .group_by(decisions.c.ticket)
    )
    call_id = _body["tool_call_id"].astext
    results = await connection.execute(
        select(events.c.run_id, call_id, func.sum(func.octet_length(events.c.body)))
        .where(*_about(tenant, found))
        .group_by(events.c.run_id, call_id)
    )
    return (
        {TicketKey(ticket): size or 0 for ticket, size in sent},
        {(RunId(run_id), call): size for run_id, call, size in results},
    )


_body = cast(events.c.body, JSONB)


def _about(tenant: Tenant, found: Sequence[Ticket]) -> list[ColumnElement[bool]]:
    """Conditions for the audited events about these tickets and their calls."""
    of_runs = sorted({(ticket.thread_id, ticket.run_id) for ticket in found})
    calls = {ticket.call_id for ticket in found if ticket.call_id is not None}
    return [
        events.c.tenant == tenant,
        tuple_(events.c.thread_id, events.c.run_id).in_(of_runs),
        events.c.event_type.in_(AUDITED_EVENTS),
        or_(
            _body["ticket_id"].astext.in_([ticket.id for ticket in found]),
            _body["tool_call_id"].astext.in_(sorted(calls)),
        ),
    ]


async def audited_events(
    connection: Connection, tenant: Tenant, about: Sequence[Ticket]
) -> dict[RunId, list[AuditedEvent]]:
    """The audited events about these tickets and their calls, in order."""
    found: dict[RunId, list[AuditedEvent]] = {ticket.run_id: [] for ticket in about}
    columns = events.c
    statement = select(
        columns.thread_id, columns.run_id, columns.seq, columns.ts, columns.event_type, columns.body
    ).where(*_about(tenant, about))
    cursor, has_more = (0, NO_THREAD), True
    while has_more:
        # In several reads, because results of calls may be large.
        some = await page_rows(
            connection,
            statement.where(tuple_(columns.seq, columns.thread_id) > cursor),
            _audited_event,
            by=("seq", "thread_id"),
            descending=False,
            limit=EVENTS_PER_READ,
        )
        for _, run_id, one in some:
            found[run_id].append(one)
        has_more = some.has_more
        if has_more:
            thread_id, _, last = some[-1]
            cursor = (last.seq, thread_id)
    return found


def _audited_event(row: Row) -> tuple[ThreadId, RunId, AuditedEvent]:
    event = AuditedEvent(row["seq"], row["ts"], row["event_type"], parsed(row["body"]))
    return ThreadId(row["thread_id"]), RunId(row["run_id"]), event
