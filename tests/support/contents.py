"""The rows of all our tables, to compare them before and after an action."""

from typing import TypeAlias

from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import RawPool

Contents: TypeAlias = dict[str, list[str]]

OF_PROCESSES = ("workers", "alembic_version")
"""Tables without data of runs."""


async def contents(connection: "RawConnection | RawPool") -> Contents:
    """Every row of every table, as text."""
    tables = await connection.fetch(
        "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' "
        "AND NOT tablename = ANY($1) ORDER BY 1",
        OF_PROCESSES,
    )
    return {
        table["name"]: [
            row["row"]
            for row in await connection.fetch(
                f'SELECT t::text AS row FROM public."{table["name"]}" t ORDER BY 1'
            )
        ]
        for table in tables
    }
