"""Everything that a database holds, to see whether something has changed it."""

from typing import TypeAlias

import asyncpg

from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import RawPool
from app.storage.tables import metadata

Contents: TypeAlias = dict[str, list[str]]
"""Every row of every table, in an order of its own."""

_QUEUE = "pgq.pgqueuer"
_TABLES = (*metadata.tables, _QUEUE)
_BEATS_BY_ITSELF = "workers"


async def contents(database: "RawPool | RawConnection") -> Contents:
    """All tables of ours, and the deliveries that are queued."""
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
    """How many rows there are, of the tables that have any."""
    return {table: len(rows) for table, rows in (await contents(pool)).items() if rows}


async def all_rows(url: str) -> Contents:
    """All that changes only when somebody asks for it, of a database that a server uses."""
    connection = await asyncpg.connect(url)
    try:
        found = await contents(connection)
    finally:
        await connection.close()
    del found[_BEATS_BY_ITSELF]
    return found


async def nothing_is_queued(url: str) -> bool:
    """Whether every delivery has been worked off: that is noted a little later than it happens."""
    return not (await all_rows(url))[_QUEUE]
