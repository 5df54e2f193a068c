"""Transactions of a frozen process end, so that their locks block other processes for a bounded time."""

import pytest

from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from tests.support.conditions import eventually

pytestmark = pytest.mark.anyio

_LOCK = "SELECT pg_try_advisory_xact_lock(1)"


async def test_a_transaction_ends_although_its_process_froze_within_a_statement(
    database: Database, database_url: str
) -> None:
    """Preparing a statement stops where a frozen process may stop: the server waits for the rest of it."""
    options = DatabaseOptions(pool_size=1, hot_pool_size=1, transaction_timeout=0.3)
    other = await Database.open(database_url, options)

    async def is_free() -> bool:
        return bool(await database.pool.fetchval(_LOCK))

    with pytest.raises(DATABASE_UNAVAILABLE):  # noqa: PT012  the lock is watched within
        async with other.transaction() as frozen:
            assert await frozen.driver.fetchval(_LOCK)
            await frozen.driver.prepare("SELECT 2")
            assert not await is_free()
            await eventually(is_free)
    await other.close()
