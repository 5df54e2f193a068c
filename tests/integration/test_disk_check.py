"""After a disk-full error the database is ready only once an allocation succeeds."""

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


async def fail_with_a_full_disk(database: Database) -> None:
    with pytest.raises(DatabaseUnavailable):
        async with database.transaction() as connection:
            await connection.execute(_FULL)


async def reason_not_ready(database: Database) -> UnavailableReason | None:
    try:
        await database.ping()
    except DatabaseUnavailable as error:
        return error.reason
    return None


async def test_after_a_full_disk_the_database_is_ready_once_an_allocation_succeeds(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fail_with_a_full_disk(database)
    assert await reason_not_ready(database) is UnavailableReason.DISK_FULL
    monkeypatch.setattr(errors, "RECENT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(disk_check, "_ALLOCATE", _FULL)
        assert await reason_not_ready(database) is UnavailableReason.DISK_FULL
        assert await reason_not_ready(database) is UnavailableReason.DISK_FULL
    assert await reason_not_ready(database) is None
    assert (
        await database.pool.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE 'room%'")
        == 0
    )


async def test_a_role_that_may_not_allocate_reports_a_ready_database(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await asyncpg.connect(database_url)
    name = urlsplit(database_url).path[1:]
    await connection.execute(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    await connection.execute(f"ALTER DATABASE {name} SET role = pg_monitor")
    await connection.close()
    monkeypatch.setattr(errors, "RECENT_SECONDS", 0.0)
    database = await Database.open(database_url, DatabaseOptions(pool_size=1, hot_pool_size=1))
    await fail_with_a_full_disk(database)
    assert await reason_not_ready(database) is None
    await database.close()
