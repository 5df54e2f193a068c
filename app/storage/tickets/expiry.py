"""Deadlines of tickets: whose time is over, and whom people have to be reminded of.

By the database's clock: those of the replicas may jump.
"""

from sqlalchemy import and_, func, select, text, update

from app.domain.ids import RunId, Tenant, ThreadId, TicketKey
from app.domain.tickets.terms import OnExpiry
from app.domain.tickets.tickets import NoticeKind, Ticket, TicketStatus
from app.storage.postgres.database import Connection
from app.storage.tables import tickets
from app.storage.tickets.notices import notice
from app.storage.tickets.tickets import of_run


async def runs_with_due(connection: Connection, limit: int) -> list[tuple[Tenant, ThreadId, RunId]]:
    """Runs with a ticket whose time is over, or that people have to be reminded of."""
    is_over = and_(
        tickets.c.status == "open",
        tickets.c.on_expiry != OnExpiry.KEEP.value,
        tickets.c.expires_at <= func.now(),
    )
    to_remind = and_(
        tickets.c.status == "open",
        tickets.c.remind_at.is_not(None),
        tickets.c.remind_at <= func.now(),
    )
    columns = (tickets.c.tenant, tickets.c.thread_id, tickets.c.run_id)
    found: dict[tuple[Tenant, ThreadId, RunId], None] = {}
    for due, order in ((is_over, tickets.c.expires_at), (to_remind, tickets.c.remind_at)):
        rows = await connection.execute(select(*columns).where(due).order_by(order).limit(limit))
        for tenant, thread_id, run_id in rows:
            found[Tenant(tenant), ThreadId(thread_id), RunId(run_id)] = None
    return list(found)


async def expire_due(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Ticket]:
    """End the time of whatever is due by now; the caller holds the run's lock."""
    rows = await connection.execute(
        update(tickets)
        .where(
            tickets.c.tenant == tenant,
            tickets.c.run_id == run_id,
            tickets.c.status == "open",
            tickets.c.on_expiry != OnExpiry.KEEP.value,
            tickets.c.expires_at <= func.now(),
        )
        .values(status=TicketStatus.EXPIRED.value, remind_at=None, updated_at=func.now())
        .returning(tickets.c.id)
    )
    keys = {row.id for row in rows}
    await notice(connection, tenant, sorted(keys), NoticeKind.EXPIRED)
    if not keys:
        return []
    return [each for each in await of_run(connection, tenant, run_id) if each.id in keys]


_REMIND = text("""
UPDATE tickets SET reminders = reminders + 1, remind_at = CASE
    WHEN reminders = 0 THEN expires_at - (expires_at - remind_at) * 0.2
    WHEN reminders = 1 AND on_expiry = 'keep' THEN expires_at END
WHERE tenant = :tenant AND run_id = :run_id AND status = 'open' AND remind_at <= now()
RETURNING id::text, extract(epoch FROM expires_at - now())::float8 AS seconds_left
""")


async def remind_due(
    connection: Connection, tenant: Tenant, run_id: RunId
) -> list[tuple[Ticket, float]]:
    """Tickets that people are to be reminded of now, with the seconds that are left; at half of the time
    and when a tenth is left, and at its end once more if the ticket stays. Under the run's lock."""
    rows = await connection.execute(_REMIND, {"tenant": tenant, "run_id": run_id})
    left = {TicketKey(row.id): row.seconds_left for row in rows}
    await notice(connection, tenant, sorted(left), NoticeKind.REMINDER)
    if not left:
        return []
    known = await of_run(connection, tenant, run_id)
    return [(each, left[each.id]) for each in known if each.id in left]
