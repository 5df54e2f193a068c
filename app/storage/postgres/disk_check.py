"""Checks whether the server's disk has free space, by allocating new pages.

Call only after a disk-full error: small writes can succeed on a full disk, because they use existing pages.
"""

from sqlalchemy import text

from app.storage.postgres.connection import DatabaseConnection

_USE_DEFAULT_TABLESPACE = text("SET LOCAL temp_tablespaces = ''")
# Half a megabyte of new pages. Rows this short aren't compressed.
_ALLOCATE = text(
    "CREATE TEMPORARY TABLE disk_check ON COMMIT DROP AS "
    "SELECT repeat('-', 1900) AS filler FROM generate_series(1, 256)"
)


async def allocate_pages(connection: DatabaseConnection) -> None:
    """Raise `DiskFullError` if there is no space. The end of the transaction frees the pages."""
    await connection.execute(_USE_DEFAULT_TABLESPACE)
    await connection.execute(_ALLOCATE)
