"""A server whose disk was full is ready again once there is room, and not a moment sooner."""

from urllib.parse import urlsplit

import asyncpg
import pytest
from sqlalchemy import text

from app.domain.errors import DatabaseUnavailable, UnavailableReason
from app.storage.postgres import disk_check, errors
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database

pytestmark = pytest.mark.anyio

_FULL = text("DO $$ BEGIN RAISE 'no space left' USING ERRCODE = 'disk_full'; END $$")


async def suffer_from_a_full_disk(database: Database) -> None:
    with pytest.raises(DatabaseUnavailable):
        async with database.transaction() as connection:
            await connection.execute(_FULL)


async def why_not_ready(database: Database) -> UnavailableReason | None:
    try:
        await database.ping()
    except DatabaseUnavailable as error:
        return error.reason
    return None


async def test_a_disk_is_believed_to_have_room_when_some_was_found(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await suffer_from_a_full_disk(database)
    assert await why_not_ready(database) is UnavailableReason.DISK_FULL
    monkeypatch.setattr(errors, "RECENT_SECONDS", 0.0)
    with monkeypatch.context() as still_full:
        still_full.setattr(disk_check, "_ALLOCATE", _FULL)
        assert await why_not_ready(database) is UnavailableReason.DISK_FULL
        assert await why_not_ready(database) is UnavailableReason.DISK_FULL
    assert await why_not_ready(database) is None
    assert (
        await database.pool.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE 'room%'")
        == 0
    )


async def test_who_may_not_look_for_room_believes_that_there_is(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await asyncpg.connect(database_url)
    name = urlsplit(database_url).path[1:]
    await connection.execute(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    await connection.execute(f"ALTER DATABASE {name} SET role = pg_monitor")
    await connection.close()
    monkeypatch.setattr(errors, "RECENT_SECONDS", 0.0)
    database = await Database.open(database_url, DatabaseOptions(pool_size=1, hot_pool_size=1))
    await suffer_from_a_full_disk(database)
    assert await why_not_ready(database) is None
    await database.close()
