"""The feed of a tenant's inbox: what became of its tickets, numbered 1, 2, 3 … once it is committed.

Whoever writes a notice waits for nobody and gives it no number. Numbers are given by whoever reads,
one reader at a time, to what is committed by then. So a number is never given twice, nothing appears
behind a number that somebody has read already, and no slow commit holds up another.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select, text

from app.domain.ids import Tenant
from app.domain.slices import Slice
from app.domain.tickets.decisions import Decision
from app.domain.tickets.tickets import NoticeKind, Ticket, TicketFilter
from app.storage.codec import Row
from app.storage.page_rows import page_rows
from app.storage.postgres.database import Connection, Database
from app.storage.tables import decisions, ticket_feed, tickets
from app.storage.tickets.decisions import DECISION_NAMES, decision_columns, decision_of
from app.storage.tickets.listing import conditions
from app.storage.tickets.tickets import ticket_of

_AT_ONCE = 1000
_NEW = text("SELECT EXISTS (SELECT FROM ticket_feed WHERE tenant = :tenant AND number IS NULL)")
_BEGIN = text(
    "INSERT INTO ticket_feed_heads (tenant, next_number) VALUES (:tenant, 1) ON CONFLICT DO NOTHING"
)
_LOCK = text("SELECT next_number FROM ticket_feed_heads WHERE tenant = :tenant FOR UPDATE")
_NUMBER = text("""
WITH fresh AS (
    SELECT id, row_number() OVER (ORDER BY id) AS place FROM ticket_feed
    WHERE tenant = :tenant AND number IS NULL ORDER BY id LIMIT :at_once
), numbered AS (
    UPDATE ticket_feed f SET number = :next + fresh.place - 1 FROM fresh
    WHERE f.tenant = :tenant AND f.id = fresh.id
    RETURNING 1
)
UPDATE ticket_feed_heads SET next_number = :next + (SELECT count(*) FROM numbered)
WHERE tenant = :tenant
""")
_HEAD = text("""
SELECT next_number - 1 AS head, coalesce(pruned_to, 0) AS pruned_to FROM ticket_feed_heads
WHERE tenant = :tenant
""")
_UNNUMBERED = text("""
SELECT DISTINCT tenant FROM ticket_feed WHERE number IS NULL ORDER BY tenant LIMIT :limit
""")
_FORGET = text("""
WITH old AS (
    SELECT f.tenant, f.id, f.number FROM ticket_feed_heads h CROSS JOIN LATERAL (
        SELECT tenant, id, number, at FROM ticket_feed
        WHERE tenant = h.tenant AND number IS NOT NULL ORDER BY number LIMIT :limit
    ) AS f
    WHERE f.at < now() - CAST(:age AS interval)
    LIMIT :limit
), gone AS (
    DELETE FROM ticket_feed f USING old
    WHERE f.tenant = old.tenant AND f.id = old.id
    RETURNING f.tenant, f.number
), noted AS (
    UPDATE ticket_feed_heads h SET pruned_to = g.number
    FROM (SELECT tenant, max(number) AS number FROM gone GROUP BY tenant) AS g
    WHERE h.tenant = g.tenant
)
SELECT count(*) FROM gone
""")


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that became of a ticket. `decision` is the one that it tells of, for some kinds."""

    number: int
    kind: NoticeKind
    at: datetime
    ticket: Ticket
    decision: Decision | None


@dataclass(frozen=True, slots=True)
class Notices:
    """Some notices in order, and how far the feed was numbered when they were read."""

    notices: tuple[Notice, ...]
    head: int
    pruned_to: int
    """Up to here they have been removed."""
    is_full: bool
    """There are more before the head."""


async def read_after(
    database: Database, tenant: Tenant, after: int, wanted: TicketFilter, limit: int
) -> Notices:
    """The next notices, with all that is committed by now numbered."""
    async with database.reading() as connection:
        is_behind = (await connection.execute(_NEW, {"tenant": tenant})).scalar_one()
    if is_behind:
        async with database.transaction() as connection:
            await _number(connection, tenant)
    async with database.reading() as connection:
        # First the head: what is numbered after this is read next time.
        row = (await connection.execute(_HEAD, {"tenant": tenant})).one_or_none()
        head, pruned_to = (0, 0) if row is None else (row.head, row.pruned_to)
        notices = await _notices(connection, tenant, after, head, wanted, limit)
    return Notices(notices.items, head, pruned_to, notices.has_more)


async def _number(connection: Connection, tenant: Tenant) -> None:
    await connection.execute(_BEGIN, {"tenant": tenant})
    # A statement of its own: what is numbered next must see what others have numbered before.
    number = (await connection.execute(_LOCK, {"tenant": tenant})).scalar_one()
    await connection.execute(_NUMBER, {"tenant": tenant, "next": number, "at_once": _AT_ONCE})


async def _notices(
    connection: Connection,
    tenant: Tenant,
    after: int,
    head: int,
    wanted: TicketFilter,
    limit: int,
) -> Slice[Notice]:
    its_ticket = (tickets.c.tenant == ticket_feed.c.tenant) & (tickets.c.id == ticket_feed.c.ticket)
    its_decision = (
        (decisions.c.tenant == ticket_feed.c.tenant)
        & (decisions.c.ticket == ticket_feed.c.ticket)
        & (decisions.c.decision_id == ticket_feed.c.decision_id)
    )
    statement = (
        select(
            tickets,
            *decision_columns,
            ticket_feed.c.number.label("f_number"),
            ticket_feed.c.kind.label("f_kind"),
            ticket_feed.c.at.label("f_at"),
            func.coalesce(ticket_feed.c.decision_id, "").label("f_decision_id"),
        )
        .select_from(ticket_feed)
        .join(tickets, its_ticket)
        .join(decisions, its_decision, isouter=True)
        .where(
            ticket_feed.c.tenant == tenant,
            ticket_feed.c.number > after,
            ticket_feed.c.number <= head,
            *conditions(wanted),
        )
    )
    return await page_rows(
        connection, statement, _notice_of, by=("f_number",), descending=False, limit=limit
    )


def _notice_of(row: Row) -> Notice:
    decided = {**{name: row[name] for name in DECISION_NAMES}, "decision_id": row["f_decision_id"]}
    return Notice(
        number=row["f_number"],
        kind=NoticeKind(row["f_kind"]),
        at=row["f_at"],
        ticket=ticket_of(row),
        decision=None if row["d_action"] is None else decision_of(decided),
    )


async def forget(connection: Connection, older_than: float, limit: int) -> int:
    """Remove the oldest notices of each inbox; the tickets and decisions that they tell of stay.

    What nobody has read yet is numbered first, so that it is known how far a cursor is good.
    """
    for (tenant,) in (await connection.execute(_UNNUMBERED, {"limit": limit})).all():
        await _number(connection, Tenant(tenant))
    age = {"age": timedelta(seconds=older_than), "limit": limit}
    return int((await connection.execute(_FORGET, age)).scalar_one())
