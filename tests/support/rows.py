"""All rows of a database, to see whether an action changed them."""

from typing import TypeAlias

import asyncpg

from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import RawPool
from app.storage.tables import metadata

Contents: TypeAlias = dict[str, list[str]]
"""The rows of each table as sorted text."""

_QUEUE = "pgq.pgqueuer"
_TABLES = (*metadata.tables, _QUEUE)
_HEARTBEATS = ("workers", "mcp_servers", "usage_summed", "usage_hours", "usage_days")
"""Tables that processes write at intervals."""


async def contents(database: "RawPool | RawConnection") -> Contents:
    """The rows of all our tables, and the queued deliveries."""
    return {
        table: [
            row["text"]
            for row in await database.fetch(
                f"SELECT to_jsonb(t)::text AS text FROM {table} t ORDER BY 1"
            )
        ]
        for table in _TABLES
    }


async def sizes(pool: RawPool) -> dict[str, int]:
    """The number of rows of each table that isn't empty, without those that migrations write."""
    found = await contents(pool)
    del found["schema_revisions"]
    return {table: len(rows) for table, rows in found.items() if rows}


async def all_rows(url: str) -> Contents:
    """All rows that change only by requests, of a database in use."""
    connection = await asyncpg.connect(url)
    try:
        found = await contents(connection)
    finally:
        await connection.close()
    for table in _HEARTBEATS:
        del found[table]
    return found


async def no_run_executes(url: str) -> bool:
    """Whether no run of the database is about to change by itself."""
    connection = await asyncpg.connect(url)
    try:
        found: bool = await connection.fetchval(
            "SELECT NOT EXISTS (SELECT FROM runs WHERE status IN ('created', 'running'))"
        )
    finally:
        await connection.close()
    return found


async def nothing_is_queued(url: str) -> bool:
    """Whether every delivery is recorded as done. The record comes shortly after the work."""
    return not (await all_rows(url))[_QUEUE]
