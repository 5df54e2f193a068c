"""Everything that a database holds, to see whether something has changed it."""

from collections.abc import Mapping
from typing import TypeAlias

import asyncpg

Rows: TypeAlias = Mapping[str, tuple[int, str | None]]
"""Of each table, how many rows it has and what is in them."""

_BEAT_BY_THEMSELVES = ("workers", "alembic_version")


async def all_rows(url: str) -> Rows:
    """All tables of ours, and the deliveries that are queued."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' "
            "AND relnamespace = 'public'::regnamespace AND relname <> ALL ($1)",
            _BEAT_BY_THEMSELVES,
        )
        found = {}
        for name in [table["relname"] for table in tables] + ["pgq.pgqueuer"]:
            [(count, content)] = await connection.fetch(
                f"SELECT count(*), sum(hashtextextended(t::text, 0))::text FROM {name} t"
            )
            found[name] = (count, content)
        return found
    finally:
        await connection.close()


async def nothing_is_queued(url: str) -> bool:
    """Whether every delivery has been worked off: that is noted a little later than it happens."""
    return (await all_rows(url))["pgq.pgqueuer"][0] == 0
