"""Statements that were planned for empty tables are planned again soon after the first rows."""

import pytest

from app.storage.postgres.database import Database
from app.storage.postgres.table_statistics import MIN_ROWS, analyze_filled
from tests.support.conditions import eventually
from tests.support.stored_runs import some_run

pytestmark = pytest.mark.anyio

_INSERT = "INSERT INTO threads (tenant, id) VALUES ($1, $2)"
_READ = "SELECT next_message_seq FROM threads WHERE tenant = $1 AND id = $2"
_FORGET = "TRUNCATE threads CASCADE"


async def reads_by_primary_key(database: Database) -> bool:
    """Whether a new plan of a read by key uses the primary key."""
    run = some_run()
    async with database.pool.acquire() as connection:
        await connection.execute(f"PREPARE by_key (text, uuid) AS {_READ}")
        try:
            plan = await connection.fetch(
                f"EXPLAIN EXECUTE by_key ('{run.tenant}', '{run.thread_id}')"
            )
        finally:
            await connection.execute("DEALLOCATE by_key")
    return any("threads_pkey" in row[0] for row in plan)


async def add_threads(database: Database, number: int) -> None:
    for _ in range(number):
        run = some_run()
        await database.pool.execute(_INSERT, run.tenant, run.thread_id)


async def test_tables_with_their_first_rows_are_analysed_once(database: Database) -> None:
    await database.pool.execute(_FORGET)
    await database.pool.execute("ANALYZE threads")
    assert "threads" not in await analyze_filled(database.pool)
    await add_threads(database, MIN_ROWS)

    async def is_analysed() -> bool:
        # The server counts rows a moment after they were committed.
        return "threads" in await analyze_filled(database.pool)

    await eventually(is_analysed)
    assert "threads" not in await analyze_filled(database.pool)
    assert await reads_by_primary_key(database)
