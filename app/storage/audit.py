"""The history of decisions, put together from what tickets, decisions and events say."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import exists, or_, select, tuple_

from app.domain.control_events import TicketDecided, TicketExpired
from app.domain.events import ToolCallDone, ToolCallResumed
from app.domain.ids import RunId, Tenant, ThreadId, TicketKey
from app.domain.slices import Slice
from app.domain.tickets import Ticket
from app.domain.times import Period
from app.storage.database import Connection
from app.storage.page_rows import page_rows
from app.storage.tables import decisions, events, tickets
from app.storage.tickets import ticket_of, with_winner

TOLD = (
    TicketDecided.event_type,
    TicketExpired.event_type,
    ToolCallDone.event_type,
    ToolCallResumed.event_type,
)


@dataclass(frozen=True, slots=True)
class Told:
    """An event about a call: that its ticket was settled, or what the call came to."""

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
    """Tickets about which something has happened in a period, oldest first."""
    conditions = [tickets.c.tenant == tenant, tickets.c.created_at < period.end]
    if period.begin is not None:
        answered = decisions.alias("answered")
        conditions.append(
            or_(
                tickets.c.created_at >= period.begin,
                tickets.c.updated_at >= period.begin,
                tickets.c.applied_at >= period.begin,
                exists().where(
                    answered.c.tenant == tickets.c.tenant,
                    answered.c.ticket == tickets.c.id,
                    answered.c.at >= period.begin,
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


async def told(
    connection: Connection,
    tenant: Tenant,
    runs: Sequence[tuple[ThreadId, RunId]],
) -> dict[RunId, list[Told]]:
    """What was said of the calls of some runs, in order."""
    found: dict[RunId, list[Told]] = {run_id: [] for _, run_id in runs}
    statement = (
        select(events.c.run_id, events.c.seq, events.c.ts, events.c.event_type, events.c.body)
        .where(
            events.c.tenant == tenant,
            tuple_(events.c.thread_id, events.c.run_id).in_(list(runs)),
            events.c.event_type.in_(TOLD),
        )
        .order_by(events.c.seq)
    )
    for row in await connection.execute(statement):
        found[RunId(row.run_id)].append(Told(row.seq, row.ts, row.event_type, json.loads(row.body)))
    return found
