"""The feed of a tenant's tickets: notices, numbered 1, 2, 3 … after their commit.

A writer inserts a notice without a number, so that it waits for no other commit. Readers number the committed
notices, one reader at a time. So no number is used twice, and no notice appears before one that was read.
"""

from datetime import datetime, timedelta

from msgspec import Struct
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

_MAX_NUMBERED = 1000
_HAS_UNNUMBERED = text(
    "SELECT EXISTS (SELECT FROM ticket_feed WHERE tenant = :tenant AND number IS NULL)"
)
_INSERT_HEAD = text(
    "INSERT INTO ticket_feed_heads (tenant, next_number) VALUES (:tenant, 1) ON CONFLICT DO NOTHING"
)
_LOCK_HEAD = text("SELECT next_number FROM ticket_feed_heads WHERE tenant = :tenant FOR UPDATE")
_NUMBER = text("""
WITH unnumbered AS (
    SELECT id, row_number() OVER (ORDER BY id) AS position FROM ticket_feed
    WHERE tenant = :tenant AND number IS NULL ORDER BY id LIMIT :limit
), numbered AS (
    UPDATE ticket_feed f SET number = :next + unnumbered.position - 1 FROM unnumbered
    WHERE f.tenant = :tenant AND f.id = unnumbered.id
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
_DELETE_OLD = text("""
WITH old AS (
    SELECT f.tenant, f.id, f.number FROM ticket_feed_heads h CROSS JOIN LATERAL (
        SELECT tenant, id, number, at FROM ticket_feed
        WHERE tenant = h.tenant AND number IS NOT NULL ORDER BY number LIMIT :limit
    ) AS f
    WHERE f.at < now() - CAST(:age AS interval)
    LIMIT :limit
), deleted AS (
    DELETE FROM ticket_feed f USING old
    WHERE f.tenant = old.tenant AND f.id = old.id
    RETURNING f.tenant, f.number
), updated_head AS (
    UPDATE ticket_feed_heads h SET pruned_to = g.number
    FROM (SELECT tenant, max(number) AS number FROM deleted GROUP BY tenant) AS g
    WHERE h.tenant = g.tenant
)
SELECT count(*) FROM deleted
""")


class Notice(Struct, frozen=True):
    """A change of a ticket. `decision` is set for the kinds that a decision causes."""

    number: int
    kind: NoticeKind
    at: datetime
    ticket: Ticket
    decision: Decision | None


class Notices(Struct, frozen=True):
    """Some notices in order, and the last number of the feed when they were read."""

    notices: tuple[Notice, ...]
    head: int
    pruned_to: int
    """Retention has removed notices up to this number."""
    is_full: bool
    """There are more notices up to `head`."""

    @property
    def next_cursor(self) -> int:
        """The number after which the next reading begins."""
        return self.notices[-1].number if self.is_full else self.head


async def read_after(
    database: Database, tenant: Tenant, after: int, wanted: TicketFilter, limit: int
) -> Notices:
    """Number the committed notices, and return those behind `after`."""
    async with database.reading() as connection:
        has_unnumbered = (
            await connection.execute(_HAS_UNNUMBERED, {"tenant": tenant})
        ).scalar_one()
    if has_unnumbered:
        async with database.transaction() as connection:
            await _number(connection, tenant)
    async with database.reading() as connection:
        # The head first: notices that are numbered after this belong to the next page.
        row = (await connection.execute(_HEAD, {"tenant": tenant})).one_or_none()
        head, pruned_to = (0, 0) if row is None else (row.head, row.pruned_to)
        notices = await _notices(connection, tenant, after, head, wanted, limit)
    return Notices(notices.items, head, pruned_to, notices.has_more)


async def _number(connection: Connection, tenant: Tenant) -> None:
    await connection.execute(_INSERT_HEAD, {"tenant": tenant})
    # A separate statement: the next one must read the numbers that other readers have committed.
    number = (await connection.execute(_LOCK_HEAD, {"tenant": tenant})).scalar_one()
    await connection.execute(_NUMBER, {"tenant": tenant, "next": number, "limit": _MAX_NUMBERED})


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


async def delete_old(connection: Connection, older_than: float, limit: int) -> int:
    """Delete the oldest notices of each tenant. Their tickets and decisions stay.

    Unread notices are numbered first, so that `pruned_to` covers them.
    """
    for (tenant,) in (await connection.execute(_UNNUMBERED, {"limit": limit})).all():
        await _number(connection, Tenant(tenant))
    age = {"age": timedelta(seconds=older_than), "limit": limit}
    return int((await connection.execute(_DELETE_OLD, age)).scalar_one())
