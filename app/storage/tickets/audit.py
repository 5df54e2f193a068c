"""The history of decisions, put together from what tickets, decisions and events say."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import exists, or_, select, tuple_

from app.domain.events.command_events import TicketDecided, TicketExpired
from app.domain.events.run_events import ToolCallDone, ToolCallResumed
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
"""Before every thread, in the order of ids."""
SLICE_OF_EVENTS = 500


@dataclass(frozen=True, slots=True)
class AuditedEvent:
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


async def audited_events(
    connection: Connection,
    tenant: Tenant,
    runs: Sequence[tuple[ThreadId, RunId]],
) -> dict[RunId, list[AuditedEvent]]:
    """What was said of the calls of some runs, in order."""
    found: dict[RunId, list[AuditedEvent]] = {run_id: [] for _, run_id in runs}
    columns = events.c
    statement = select(
        columns.thread_id, columns.run_id, columns.seq, columns.ts, columns.event_type, columns.body
    ).where(
        columns.tenant == tenant,
        tuple_(columns.thread_id, columns.run_id).in_(list(runs)),
        columns.event_type.in_(AUDITED_EVENTS),
    )
    place, has_more = (0, NO_THREAD), True
    while has_more:
        # In slices: what calls have come to may be large.
        some = await page_rows(
            connection,
            statement.where(tuple_(columns.seq, columns.thread_id) > place),
            _placed_told,
            by=("seq", "thread_id"),
            descending=False,
            limit=SLICE_OF_EVENTS,
        )
        for _, run_id, one in some:
            found[run_id].append(one)
        has_more = some.has_more
        if has_more:
            thread_id, _, last = some[-1]
            place = (last.seq, thread_id)
    return found


def _placed_told(row: Row) -> tuple[ThreadId, RunId, AuditedEvent]:
    told = AuditedEvent(row["seq"], row["ts"], row["event_type"], json.loads(row["body"]))
    return ThreadId(row["thread_id"]), RunId(row["run_id"]), told
