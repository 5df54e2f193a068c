"""Counts of a tenant's runs: those that aren't done now, and those of a period by how they ended.

No count reads more rows than it is allowed to, so that a large table makes it less exact and not slower.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy import text

from app.domain.ids import AgentId, Tenant
from app.domain.runs.runs import RunStatus
from app.domain.runs.terminations import OUTCOME_OF_TYPE, Outcome
from app.storage.postgres.database import Connection

MAX_COUNTED = 10_000
"""Rows that are counted of each status."""
MAX_READ = 50_000
"""Runs of a period that are read, the newest first."""

_UNFINISHED = text("""
SELECT s.status, r.admitted, r.waiting_reason, count(*) AS runs, min(r.created_at) AS oldest_at
FROM (VALUES ('created'), ('running'), ('waiting')) AS s(status), LATERAL (
    SELECT admitted, waiting_reason, created_at FROM runs
    WHERE tenant = :tenant AND status = s.status AND status <> 'done'
        AND (CAST(:agent AS text) IS NULL OR agent_id = :agent)
    ORDER BY created_at LIMIT :most
) AS r
GROUP BY s.status, r.admitted, r.waiting_reason
""")
_OPEN_TICKETS = text("""
SELECT count(*) FROM (
    SELECT FROM tickets WHERE tenant = :tenant AND status = 'open' AND kind NOT IN ('child', 'event')
        AND (CAST(:agent AS text) IS NULL OR agent_id = :agent)
    LIMIT :most
) AS open
""")
_PERIOD = text("""
SELECT date_bin(CAST(:width AS interval), created_at, CAST(:begin AS timestamptz)) AS begins_at,
    termination ->> 'type' AS type, count(*) AS runs, sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens
FROM (
    SELECT created_at, termination, input_tokens, output_tokens FROM runs
    WHERE tenant = :tenant AND created_at >= :begin AND created_at < :end
        AND (CAST(:agent AS text) IS NULL OR agent_id = :agent)
    ORDER BY created_at DESC, id DESC LIMIT :most
) AS newest
GROUP BY begins_at, type
""")


class UnfinishedCount(Struct, frozen=True):
    """Runs with the same status, and what they wait for."""

    status: RunStatus
    is_admitted: bool
    """False for a run that is queued behind another one of its thread."""
    waiting_reason: str | None
    runs: int
    oldest_at: datetime


class PeriodCount(Struct, frozen=True):
    """Runs that were created in one part of a period and ended in the same way; None: not done."""

    begins_at: datetime
    outcome: Outcome | None
    runs: int
    input_tokens: int
    output_tokens: int


async def unfinished(
    connection: Connection, tenant: Tenant, agent: AgentId | None
) -> list[UnfinishedCount]:
    """Unfinished runs. A status with more than `MAX_COUNTED` runs is counted up to that."""
    given = {"tenant": tenant, "agent": agent, "most": MAX_COUNTED}
    rows = (await connection.execute(_UNFINISHED, given)).all()
    return [
        UnfinishedCount(
            RunStatus(row["status"]),
            row["admitted"],
            row["waiting_reason"],
            row["runs"],
            row["oldest_at"],
        )
        for row in rows
    ]


async def open_tickets(connection: Connection, tenant: Tenant, agent: AgentId | None) -> int:
    """Open tickets that a person decides, counted up to `MAX_COUNTED`."""
    given = {"tenant": tenant, "agent": agent, "most": MAX_COUNTED}
    return int((await connection.execute(_OPEN_TICKETS, given)).scalar_one())


async def of_period(
    connection: Connection,
    tenant: Tenant,
    agent: AgentId | None,
    *,
    begin: datetime,
    end: datetime,
    width: timedelta,
) -> list[PeriodCount]:
    """The newest `MAX_READ` runs that were created in a period, in parts of this width."""
    given: Mapping[str, object] = {
        "tenant": tenant,
        "agent": agent,
        "begin": begin,
        "end": end,
        "width": width,
        "most": MAX_READ,
    }
    rows = (await connection.execute(_PERIOD, given)).all()
    return [
        PeriodCount(
            row["begins_at"],
            None if row["type"] is None else OUTCOME_OF_TYPE[row["type"]],
            row["runs"],
            int(row["input_tokens"]),
            int(row["output_tokens"]),
        )
        for row in rows
    ]
