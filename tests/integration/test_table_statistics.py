"""Statements that were planned for empty tables are planned again soon after the first rows."""

import pytest

from app.storage.postgres.database import Database
from app.storage.postgres.table_statistics import MIN_ROWS, OF_EACH_RUN, analyze_filled
from app.workers.periodic.table_statistics import SELDOM_SECONDS, TableStatistics
from tests.support.conditions import eventually
from tests.support.stored_runs import some_run

pytestmark = pytest.mark.anyio

_INSERT = "INSERT INTO threads (tenant, id) VALUES ($1, $2)"
_READ = "SELECT next_message_seq FROM threads WHERE tenant = $1 AND id = $2"
_FORGET = "TRUNCATE threads CASCADE"
_COUNTED = "SELECT pg_stat_get_live_tuples('threads'::regclass)"
# As after an ANALYZE of tables with so many rows.
_PRETEND = "UPDATE pg_class SET reltuples = $2 WHERE oid = ANY ($1::text[]::regclass[])"


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


async def fill_threads(database: Database) -> None:
    """Add rows, and wait until the server has counted them, which it does a moment after the commit."""
    await add_threads(database, MIN_ROWS)

    async def are_counted() -> bool:
        return int(await database.pool.fetchval(_COUNTED)) >= MIN_ROWS

    await eventually(are_counted)


async def test_tables_with_their_first_rows_are_analysed_once(database: Database) -> None:
    await database.pool.execute(_FORGET)
    await database.pool.execute("ANALYZE threads")
    looked = await analyze_filled(database.pool)
    assert "threads" not in looked.now
    assert "threads" in looked.left
    await fill_threads(database)
    looked = await analyze_filled(database.pool)
    assert "threads" in looked.now
    assert "threads" not in looked.left
    assert "threads" not in (await analyze_filled(database.pool)).now
    assert await reads_by_primary_key(database)


async def test_the_job_looks_seldom_at_tables_of_decisions_and_ends_with_the_last_table(
    database: Database,
) -> None:
    await database.pool.execute(_FORGET)
    await database.pool.execute("ANALYZE threads, tickets, decisions")
    job = TableStatistics(database, interval=0.01)
    await job.run_once()
    assert (job.interval, job.stopping.is_set()) == (0.01, False)
    await database.pool.execute(_PRETEND, [*OF_EACH_RUN, "tickets"], MIN_ROWS)
    await job.run_once()
    assert (job.interval, job.stopping.is_set()) == (SELDOM_SECONDS, False)
    await database.pool.execute(_PRETEND, ["decisions"], MIN_ROWS)
    await job.run_once()
    assert job.stopping.is_set()
    await job.run()
