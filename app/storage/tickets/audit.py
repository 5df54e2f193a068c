"""The audit of decisions, read from tickets, decisions and events."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import exists, or_, select, tuple_

from app.domain.events.ticket_events import TicketDecided, TicketExpired
from app.domain.events.tool_call_events import ToolCallDone, ToolCallResumed
from app.domain.ids import RunId, Tenant, ThreadId, TicketKey
from app.domain.slices import Slice
from app.domain.tickets.tickets import Ticket
from app.domain.timestamps import Period
from app.storage.codec import Row
from app.storage.page_rows import page_rows
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


@dataclass(frozen=True, slots=True)
class AuditedEvent:
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


async def audited_events(
    connection: Connection,
    tenant: Tenant,
    runs: Sequence[tuple[ThreadId, RunId]],
) -> dict[RunId, list[AuditedEvent]]:
    """The audited events of these runs, in order."""
    found: dict[RunId, list[AuditedEvent]] = {run_id: [] for _, run_id in runs}
    columns = events.c
    statement = select(
        columns.thread_id, columns.run_id, columns.seq, columns.ts, columns.event_type, columns.body
    ).where(
        columns.tenant == tenant,
        tuple_(columns.thread_id, columns.run_id).in_(list(runs)),
        columns.event_type.in_(AUDITED_EVENTS),
    )
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
    event = AuditedEvent(row["seq"], row["ts"], row["event_type"], json.loads(row["body"]))
    return ThreadId(row["thread_id"]), RunId(row["run_id"]), event
