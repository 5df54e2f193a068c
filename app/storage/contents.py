"""How much a database has, for people who back it up."""

import asyncpg
from msgspec import Struct

from app.storage.postgres.urls import asyncpg_dsn

_COUNTS = """
SELECT (SELECT count(*) FROM threads) AS threads,
       (SELECT count(*) FROM runs) AS runs,
       (SELECT version_num FROM alembic_version) AS revision
"""


class DatabaseContents(Struct, frozen=True):
    threads: int
    runs: int
    revision: str


async def contents_of(url: str) -> DatabaseContents | None:
    """What the database has; None if it has no tables of Holdfast."""
    connection = await asyncpg.connect(asyncpg_dsn(url))
    try:
        [row] = await connection.fetch(_COUNTS)
        return DatabaseContents(**row)
    except asyncpg.UndefinedTableError:
        return None
    finally:
        await connection.close()
