"""A request whose client goes away leaves nothing on its connection that the next request would notice."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import text

from app.clock import yield_to_loop
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.runs import runs

pytestmark = pytest.mark.anyio

LEVEL = "SELECT current_setting('transaction_isolation')"
MAX_TURNS = 12
"""Turns of the event loop until a statement that waits for nothing has certainly been sent."""


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """With one connection, so that each request gets that of the one before."""
    opened = await Database.open(database_url, DatabaseOptions(pool_size=1, hot_pool_size=1))
    try:
        yield opened
    finally:
        await opened.close()


async def in_pool(database: Database, name: str) -> None:
    await database.pool.fetchval(f"SELECT count(*) AS {name} FROM runs")


async def reading(database: Database, name: str) -> None:
    async with database.reading_by_key() as connection:
        await connection.execute(text(f"SELECT count(*) AS {name} FROM runs"))


async def in_transaction(database: Database, name: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(text(f"SELECT count(*) AS {name} FROM runs"))


@pytest.mark.parametrize("request_", [in_pool, reading, in_transaction])
async def test_no_transaction_is_left_after_a_request_that_was_given_up_at_any_moment(
    database: Database, request_: Callable[[Database, str], Coroutine[Any, Any, None]]
) -> None:
    for turns in range(MAX_TURNS):
        # A statement that its connection doesn't know is prepared first, and may be given up then.
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(request_(database, f"after_{turns}"))
            for _ in range(turns):
                await yield_to_loop()
            asked.cancel()
        async with database.pool.acquire() as driver:
            assert not driver.is_in_transaction()
        async with database.transaction() as connection:
            await runs.use_one_snapshot(connection)
            assert await connection.driver.fetchval(LEVEL) == "repeatable read"
