"""A month of traffic makes each table grow as the documents say."""

import asyncio
import re
from datetime import timedelta

import pytest

from app.clock import SystemClock
from app.storage.postgres.database import Database, RawPool
from app.workers.periodic.retention import Retention, RetentionAges
from tests.support.documents import page, part
from tests.support.emitters import TIMEOUT_SECONDS
from tests.support.month_of_runs import DELTAS, MERGED, MESSAGES, day, side_rows
from tests.support.stored_runs import worker

pytestmark = pytest.mark.anyio

KEPT = page("docs/explanation/what-is-kept.md")
DAYS = 30
THREADS = 3
RUNS_EACH = 4
RUNS_A_DAY = THREADS * RUNS_EACH
RUNS = DAYS * RUNS_A_DAY
TOLERANCE = 0.15
_TABLES = ("threads", "event_heads", "runs", "messages", "events")


def growth_as_written() -> dict[str, float]:
    """What one run adds, by the table of the documents: kilobytes and rows."""
    table = part(KEPT, "growth", "end of growth")
    return {
        name: float(figure)
        for name, figure in re.findall(r"^\| ([^|]+?) \| ([\d.]+)(?: kB)? \|$", table, re.M)
    }


async def on_disk(pool: RawPool, table: str) -> int:
    """The size of the table with its indexes, after a full vacuum."""
    await pool.execute(f"VACUUM (FULL, ANALYZE) {table}")
    size: int = await pool.fetchval("SELECT pg_total_relation_size($1::text::regclass)", table)
    return size


async def events_of_a_run(pool: RawPool, *, old: bool) -> tuple[float, float]:
    """Rows and bytes, as stored."""
    [row] = await pool.fetch(
        "SELECT count(*) AS rows, sum(pg_column_size(e.*)) AS bytes, count(DISTINCT run_id) AS runs"
        " FROM events e WHERE (ts < now() - interval '2 hours') = $1",
        old,
    )
    return row["rows"] / row["runs"], row["bytes"] / row["runs"]


async def test_a_month_of_traffic_grows_the_database_as_documented(database: Database) -> None:
    pool, owner = database.pool, await worker(database.pool)
    retention_jobs = [
        Retention(database, RetentionAges(), interval=TIMEOUT_SECONDS) for _ in range(4)
    ]
    before = {table: await on_disk(pool, table) for table in _TABLES}
    now = SystemClock().now() - timedelta(minutes=10)
    merged = 0
    for days_ago in reversed(range(DAYS)):
        at = now - timedelta(days=days_ago)
        await day(pool, owner, at, threads=THREADS, runs_each=RUNS_EACH)
        await side_rows(pool, at, RUNS_A_DAY)
        async with asyncio.TaskGroup() as tasks:
            keeping = [tasks.create_task(one.run_once()) for one in retention_jobs]
        merged += sum(one.result()["merge_deltas"] for one in keeping)
    merged += (await retention_jobs[0].run_once())["merge_deltas"]

    # The deltas of each run were merged once, by one of the jobs, except those of today.
    assert merged == MERGED * (RUNS - RUNS_A_DAY)
    written = growth_as_written()
    rows, bytes_ = await events_of_a_run(pool, old=False)
    merged_rows, merged_bytes = await events_of_a_run(pool, old=True)
    assert rows - merged_rows == MERGED < DELTAS
    measured = {
        "events, while the run is young": rows,
        "events, an hour after its end": merged_rows,
        "their bytes, while the run is young": bytes_ / 1000,
        "their bytes, an hour after its end": merged_bytes / 1000,
        "messages": MESSAGES,
    }
    growth = {table: await on_disk(pool, table) - before[table] for table in _TABLES}
    measured["on disk, all tables and indexes, after a month"] = sum(growth.values()) / RUNS / 1000
    assert measured == pytest.approx(written, rel=TOLERANCE), measured

    assert await pool.fetchval("SELECT count(*) FROM idempotency_keys") == RUNS_A_DAY
    assert await pool.fetchval("SELECT count(*) FROM pgq.pgqueuer_log") == 3 * 7 * RUNS_A_DAY
    assert await pool.fetchval("SELECT count(*) FROM messages") == MESSAGES * RUNS
