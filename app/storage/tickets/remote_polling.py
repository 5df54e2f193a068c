"""Chooses the open questions of remote agents that are polled next.

A question may be answered at the remote agent itself. New questions are polled in every round, older ones
with a probability that decreases with their age.
"""

from sqlalchemy import text

from app.domain.ids import RunId, Tenant
from app.storage.postgres.database import Connection

EVERY_ROUND_SECONDS = 60.0
"""A ticket up to this age is polled in every round; at twice this age in every second one."""
MIN_PROBABILITY = 1 / 30
"""The probability per round with which even the oldest ticket is polled."""

_DUE_FOR_POLL = text("""
SELECT DISTINCT tenant, run_id FROM (
    SELECT tenant, run_id::text FROM tickets
    WHERE status = 'open' AND (evidence ->> 'remote_question') IS NOT NULL
        AND random() < greatest(
            :every_round_seconds / greatest(extract(epoch FROM now() - created_at), 1), :min_probability)
    ORDER BY random() LIMIT :limit
) AS chosen
""")


async def due_for_poll(connection: Connection, limit: int) -> list[tuple[Tenant, RunId]]:
    """Runs whose open remote questions are polled now; older ones are chosen at random."""
    values = {
        "every_round_seconds": EVERY_ROUND_SECONDS,
        "min_probability": MIN_PROBABILITY,
        "limit": limit,
    }
    rows = await connection.execute(_DUE_FOR_POLL, values)
    return [(Tenant(tenant), RunId(run_id)) for tenant, run_id in rows]
