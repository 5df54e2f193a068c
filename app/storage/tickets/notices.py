"""Writes notices about tickets into the feed, in the transaction that changes the tickets."""

from collections.abc import Sequence

from sqlalchemy import Text, literal, select
from sqlalchemy.dialects.postgresql import insert

from app.domain.ids import Tenant, TicketKey
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, NoticeKind
from app.storage.postgres.database import Connection
from app.storage.tables import ticket_feed, tickets

KINDS_OF_PROGRAMS = ", ".join(f"'{kind}'" for kind in sorted(ANSWERED_BY_PROGRAMS))
"""SQL: the kinds of tickets that programs answer. They have no notices."""


async def notice(
    connection: Connection,
    tenant: Tenant,
    keys: Sequence[TicketKey],
    kind: NoticeKind,
    decision_id: str | None = None,
) -> None:
    """Insert one notice per ticket. Tickets that programs answer have none."""
    if not keys:
        return
    for_people = (
        select(
            tickets.c.tenant,
            tickets.c.id,
            literal(kind.value),
            literal(decision_id, Text()),
        )
        .where(
            tickets.c.tenant == tenant,
            tickets.c.id.in_(keys),
            tickets.c.kind.not_in(ANSWERED_BY_PROGRAMS),
        )
        .order_by(tickets.c.created_at, tickets.c.id)
    )
    await connection.execute(
        insert(ticket_feed).from_select(["tenant", "ticket", "kind", "decision_id"], for_people)
    )
