"""Tickets of remote agents: which of them to look at next.

Somebody may have answered the remote where it lives. What was asked a moment ago is looked at in every
round, what has been open for long seldom, and never more at once than somebody can look at.
"""

from sqlalchemy import text

from app.domain.ids import RunId, Tenant
from app.storage.postgres.database import Connection

OFTEN_FOR = 60.0
"""Seconds for which a ticket is looked at in every round; at twice that age, in every other one."""
SELDOM_INTERVAL = 1 / 30
"""Of the rounds, the part in which even the oldest is looked at."""

_TO_LOOK_AT = text("""
SELECT DISTINCT tenant, run_id FROM (
    SELECT tenant, run_id::text FROM tickets
    WHERE status = 'open' AND (evidence ->> 'remote_question') IS NOT NULL
        AND random() < greatest(
            :fresh / greatest(extract(epoch FROM now() - created_at), 1), :seldom)
    ORDER BY random() LIMIT :limit
) AS chosen
""")


async def due_for_poll(connection: Connection, limit: int) -> list[tuple[Tenant, RunId]]:
    """Runs that wait for answers to their remote's questions, some of them chosen by chance."""
    chosen = {"fresh": OFTEN_FOR, "seldom": SELDOM_INTERVAL, "limit": limit}
    rows = await connection.execute(_TO_LOOK_AT, chosen)
    return [(Tenant(tenant), RunId(run_id)) for tenant, run_id in rows]
