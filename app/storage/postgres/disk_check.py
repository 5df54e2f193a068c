"""Whether the server's disk has room: found out by taking some for a moment.

To be asked only of a server that had none: small things find a place in pages that are there already, on a
disk that is as full as ever.
"""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_WHERE_TABLES_ARE = text("SET LOCAL temp_tablespaces = ''")
# Half a megabyte of new pages: a row is just too short to be compressed.
_TAKE = text(
    "CREATE TEMPORARY TABLE room_taken ON COMMIT DROP AS "
    "SELECT repeat('-', 1900) AS filler FROM generate_series(1, 256)"
)


async def allocate_pages(connection: AsyncConnection) -> None:
    """Fails as anything else does that needs room, when there is none; its transaction gives it back."""
    await connection.execute(_WHERE_TABLES_ARE)
    await connection.execute(_TAKE)
