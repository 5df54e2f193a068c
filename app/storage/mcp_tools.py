"""The tools of MCP servers as they were listed and accepted, the servers' states, and requested restarts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from app.domain.json_values import JsonObject
from app.domain.principals import ALL_TENANTS
from app.storage.codec import storable_json
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql

MAX_ROWS = 512
"""The most tools of one server that are kept. Tools that are no longer listed are deleted first."""
UNSEEN_DAYS = 7
STATE_SECONDS = 60
"""A state that a process did not repeat for so long is not shown."""

_SERVER_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('mcp:' || $1, 0))"
_SELECT = """
SELECT server, name, digest, described, is_listed, first_seen, last_seen, accepted_digest, accepted, accepted_by,
    accepted_at
FROM mcp_tools WHERE tenant = $1 ORDER BY server, name
"""
_SAVE = NamedSql("""
WITH listed AS (
    SELECT * FROM jsonb_to_recordset(:tools::text::jsonb) AS k(name text, digest text, described jsonb)
), known AS (
    SELECT count(*) = 0 AS is_first FROM mcp_tools WHERE tenant = :tenant AND server = :server
), unlisted AS (
    UPDATE mcp_tools SET is_listed = false
    WHERE tenant = :tenant AND server = :server AND is_listed AND name NOT IN (SELECT name FROM listed)
        AND (:is_whole OR last_seen < now() - make_interval(days => :unseen_days))
)
INSERT INTO mcp_tools (tenant, server, name, digest, described, accepted_digest, accepted)
SELECT :tenant, :server, name, digest, described, CASE WHEN is_first THEN digest END, CASE WHEN is_first THEN described END
FROM listed, known
ON CONFLICT (tenant, server, name) DO UPDATE
SET digest = EXCLUDED.digest, described = EXCLUDED.described, is_listed = true, last_seen = now()
""")
_DELETE_OLD = """
DELETE FROM mcp_tools WHERE tenant = $1 AND server = $2 AND NOT is_listed AND name NOT IN (
    SELECT name FROM mcp_tools WHERE tenant = $1 AND server = $2
    ORDER BY is_listed DESC, last_seen DESC, name LIMIT $3
)
"""
_ACCEPT = NamedSql("""
UPDATE mcp_tools SET accepted_digest = digest, accepted = described, accepted_by = :accepted_by, accepted_at = now()
WHERE tenant = :tenant AND server = :server AND is_listed AND digest = ANY(:digests::text[])
RETURNING name
""")
_REPORT = """
INSERT INTO mcp_servers (tenant, server, worker, state, updated_at)
SELECT $1, server, $2, state, now() FROM jsonb_to_recordset($3::text::jsonb) AS k(server text, state jsonb)
ON CONFLICT (tenant, server, worker) DO UPDATE SET state = EXCLUDED.state, updated_at = now()
"""
_FORGET = """
DELETE FROM mcp_servers
WHERE tenant = $1 AND worker <> '' AND (worker = $2 OR updated_at < now() - interval '1 hour')
"""
_RESTART = """
INSERT INTO mcp_servers (tenant, server, worker, state, restarts) VALUES ($1, $2, '', '{}', 1)
ON CONFLICT (tenant, server, worker) DO UPDATE SET restarts = mcp_servers.restarts + 1, updated_at = now()
"""
_RESTARTS = "SELECT server, restarts FROM mcp_servers WHERE tenant = $1 AND worker = ''"
_STATES = """
SELECT server, worker, state, updated_at FROM mcp_servers
WHERE tenant = $1 AND worker <> '' AND updated_at > now() - make_interval(secs => $2)
ORDER BY server, worker
"""


class ServerReport(Struct, frozen=True):
    """The state of a server in one process."""

    worker: str
    state: JsonObject
    updated_at: datetime


async def load(pool: RawPool) -> dict[str, list[dict[str, Any]]]:
    """The stored tools of all servers, by server."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in await pool.fetch(_SELECT, ALL_TENANTS):
        body = dict(row)
        found[body.pop("server")].append(body)
    return found


async def save(
    connection: Connection, server: str, tools: Sequence[Mapping[str, object]], *, is_whole: bool
) -> None:
    """Store a listing: tools with `name`, `digest` and `described`.

    Others of the server are no longer listed. If the list is one subject's, they are so after some days in which
    no subject has seen them.
    """
    driver = connection.driver
    await driver.execute(_SERVER_LOCK, server)
    await driver.execute(
        *_SAVE(
            tenant=ALL_TENANTS,
            server=server,
            tools=storable_json(list(tools)),
            is_whole=is_whole,
            unseen_days=UNSEEN_DAYS,
        )
    )
    await driver.execute(_DELETE_OLD, ALL_TENANTS, server, MAX_ROWS)


async def accept(connection: Connection, server: str, digests: Sequence[str], by: str) -> list[str]:
    """Accept the listed tools with these digests, and return their names."""
    await connection.driver.execute(_SERVER_LOCK, server)
    rows = await connection.driver.fetch(
        *_ACCEPT(tenant=ALL_TENANTS, server=server, accepted_by=by, digests=list(digests))
    )
    return sorted(row["name"] for row in rows)


async def report(pool: RawPool, worker: str, states: Mapping[str, JsonObject]) -> None:
    """Store the states of servers in this process."""
    rows = [{"server": server, "state": state} for server, state in states.items()]
    await pool.execute(_REPORT, ALL_TENANTS, worker, storable_json(rows))


async def forget(pool: RawPool, worker: str) -> None:
    """Delete the states of a process that stops, and of processes that are gone."""
    await pool.execute(_FORGET, ALL_TENANTS, worker)


async def states(pool: RawPool) -> dict[str, list[ServerReport]]:
    """The states of all servers in all living processes, by server."""
    found: dict[str, list[ServerReport]] = defaultdict(list)
    for row in await pool.fetch(_STATES, ALL_TENANTS, STATE_SECONDS):
        report = ServerReport(row["worker"], row["state"], row["updated_at"])
        found[row["server"]].append(report)
    return found


async def request_restart(connection: Connection, server: str) -> None:
    """Count a restart, which each process that uses the server carries out."""
    await connection.driver.execute(_RESTART, ALL_TENANTS, server)


async def restarts(pool: RawPool) -> dict[str, int]:
    """How often each server was to be restarted."""
    rows = await pool.fetch(_RESTARTS, ALL_TENANTS)
    return {row["server"]: row["restarts"] for row in rows}
