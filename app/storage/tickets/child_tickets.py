"""Tickets of runs below a run, as the run's own stream shows them.

One row per ancestor and ticket is written together with the event on the ancestor's stream. So each ticket is
shown once as opened and once as closed, however often its follow-up is executed. The rows are only written
under the ancestor's lock.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, exists, select, text

from app.domain.ids import RunId, Tenant, TicketKey
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.storage.postgres.database import Connection
from app.storage.tables import child_tickets, tickets
from app.storage.tickets.tickets import ticket_of, with_winner

_CHANGES = text("""
WITH below AS (
    SELECT t.id AS ticket, t.status FROM tickets t
    WHERE t.tenant = :tenant AND t.run_id = CAST(:child AS uuid) AND t.kind NOT IN ('child', 'event')
    UNION ALL
    SELECT c.ticket, CASE WHEN c.status <> 'open' THEN c.status ELSE coalesce(t.status, 'void') END
    FROM child_tickets c LEFT JOIN tickets t ON t.tenant = c.tenant AND t.id = c.ticket
    WHERE c.tenant = :tenant AND c.run_id = CAST(:child AS uuid)
), known AS (
    SELECT ticket, CASE WHEN status = 'open' AND :has_ended THEN 'void' ELSE status END AS status
    FROM below
), shown AS (
    SELECT ticket, status FROM child_tickets
    WHERE tenant = :tenant AND run_id = CAST(:parent AS uuid) AND via_run_id = CAST(:child AS uuid)
)
SELECT coalesce(k.ticket, s.ticket) AS ticket, coalesce(k.status, 'void') AS status,
    s.ticket IS NULL AS is_new
FROM known k FULL JOIN shown s ON s.ticket = k.ticket
WHERE s.ticket IS NULL AND k.status <> 'void' AND :is_awaited
    OR s.status = 'open' AND coalesce(k.status, 'void') <> 'open'
""")
_WRITE = text("""
INSERT INTO child_tickets (tenant, run_id, ticket, via_run_id, status)
SELECT :tenant, CAST(:parent AS uuid), w.ticket, CAST(:child AS uuid), w.status
FROM unnest(CAST(:tickets AS uuid[]), CAST(:statuses AS text[])) AS w(ticket, status)
ON CONFLICT (tenant, run_id, ticket) DO UPDATE SET status = excluded.status, updated_at = now()
""")


class TicketChange(Struct, frozen=True):
    """What a stream has to show next about a ticket below. `ticket` is None once its row was deleted."""

    id: TicketKey
    ticket: Ticket | None
    status: TicketStatus
    is_new: bool
    """The stream hasn't shown the ticket yet."""


async def changes(
    connection: Connection,
    tenant: Tenant,
    parent: RunId,
    child: RunId,
    *,
    has_ended: bool,
    is_awaited: bool,
) -> list[TicketChange]:
    """What the parent's stream doesn't show yet about the tickets of a child and below it, oldest first.

    `has_ended`: no ticket below the child blocks the parent any more. A new ticket is only shown while the
    parent waits for the child.
    """
    found = (
        await connection.execute(
            _CHANGES,
            {
                "tenant": tenant,
                "parent": parent,
                "child": child,
                "has_ended": has_ended,
                "is_awaited": is_awaited,
            },
        )
    ).all()
    if not found:
        return []
    ids = [str(row.ticket) for row in found]
    statement = with_winner().where(tickets.c.tenant == tenant, tickets.c.id.in_(ids))
    rows = await connection.execute(statement)
    by_id = {ticket.id: ticket for ticket in map(ticket_of, rows)}
    changed = [
        TicketChange(TicketKey(id), by_id.get(TicketKey(id)), TicketStatus(row.status), row.is_new)
        for id, row in zip(ids, found, strict=True)
    ]
    return sorted(changed, key=_age)


def _age(change: TicketChange) -> tuple[str, str]:
    at = "" if change.ticket is None else change.ticket.created_at.isoformat()
    return (at, change.id)


async def write(
    connection: Connection,
    tenant: Tenant,
    parent: RunId,
    child: RunId,
    shown: Sequence[TicketChange],
) -> None:
    """Record what the parent's stream shows now. The caller holds the parent run's lock."""
    await connection.execute(
        _WRITE,
        {
            "tenant": tenant,
            "parent": parent,
            "child": child,
            "tickets": [change.id for change in shown],
            "statuses": [change.status.value for change in shown],
        },
    )


def is_shown_open(tenant: Tenant, run_id: RunId) -> ColumnElement[bool]:
    """Whether a ticket is open and shown on this run's stream as a ticket below it."""
    return and_(
        tickets.c.tenant == tenant,
        tickets.c.status == TicketStatus.OPEN.value,
        exists().where(
            child_tickets.c.tenant == tickets.c.tenant,
            child_tickets.c.ticket == tickets.c.id,
            child_tickets.c.run_id == run_id,
            child_tickets.c.status == TicketStatus.OPEN.value,
        ),
    )


async def open_below(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Ticket]:
    """The open tickets below a run that its stream shows, oldest first."""
    statement = (
        with_winner()
        .where(is_shown_open(tenant, run_id))
        .order_by(tickets.c.created_at, tickets.c.id)
    )
    return [ticket_of(row) for row in (await connection.execute(statement))]


async def with_open_below(
    connection: Connection, tenant: Tenant, run_ids: Collection[RunId]
) -> frozenset[RunId]:
    """Those of the runs whose streams show open tickets of runs below them."""
    if not run_ids:
        return frozenset()
    statement = (
        select(child_tickets.c.run_id)
        .distinct()
        .join(
            tickets,
            and_(
                tickets.c.tenant == child_tickets.c.tenant, tickets.c.id == child_tickets.c.ticket
            ),
        )
        .where(
            child_tickets.c.tenant == tenant,
            child_tickets.c.run_id.in_(run_ids),
            child_tickets.c.status == TicketStatus.OPEN.value,
            tickets.c.status == TicketStatus.OPEN.value,
        )
    )
    return frozenset(RunId(found) for found in (await connection.execute(statement)).scalars())
