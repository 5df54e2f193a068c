"""Deliveries: one wake-up per run and attempt, whoever else uses the same ids."""

import pytest
from sqlalchemy import text

from app.clock import new_id
from app.domain.ids import RunId, Tenant, ThreadId
from app.storage import deliveries
from app.storage.database import Database
from app.storage.runs import RunKey

pytestmark = pytest.mark.anyio


async def queued(database: Database, *keys: RunKey) -> int:
    async with database.transaction() as connection:
        await connection.execute(text("SELECT 1"))
        for key in keys:
            await deliveries.enqueue(connection, key)
    count: int = await database.hot.fetchval("SELECT count(*) FROM pgq.pgqueuer")
    return count


async def test_a_run_is_delivered_once_per_attempt(database: Database) -> None:
    key = RunKey(Tenant("a"), ThreadId(new_id()), RunId(new_id()), 1)
    again = RunKey(key.tenant, key.thread_id, key.run_id, 2)
    assert await queued(database, key, key, again) == 2


async def test_tenants_with_the_same_run_id_are_both_delivered(database: Database) -> None:
    thread, run = ThreadId(new_id()), RunId(new_id())
    keys = [RunKey(Tenant(name), thread, run, 1) for name in ("a", "b")]
    assert await queued(database, *keys) == 2
