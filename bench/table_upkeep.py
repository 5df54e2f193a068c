"""Retention and deletion in large tables, and short runs while retention works."""

import asyncio
import time
from statistics import median, quantiles

import aiohttp
import asyncpg

from app.storage.children import lost_followups
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.postgres.urls import asyncpg_dsn
from app.storage.runs import unattended
from app.workers.periodic.retention import Retention, RetentionAges, RetentionJob, retention_jobs
from bench.clients import HoldfastClient, load
from bench.table import Line, Mark, count, milliseconds, times

TRANSACTIONS = 30
DELETIONS = 20
HOUR, DAY = 3_600.0, 86_400.0
# Ages at which most rows of each kind are old.
AGES = RetentionAges(
    deltas=HOUR,
    events=DAY,
    tasks=DAY,
    inputs=DAY,
    notices=DAY,
    queue_log=DAY,
    answers=DAY,
    signals=DAY,
    usage=40 * DAY,
    memories=40 * DAY,
    files=DAY,
)
SHORT_TRANSACTION = Mark("p95 <= 100 ms", most=0.1)
DELETION = Mark("p95 <= 50 ms", most=0.05)
BESIDE = Mark(">= 0.8x", least=0.8)
ROUNDS = 5
_THREADS = """
SELECT thread_id::text FROM runs WHERE tenant = 'default' AND status = 'done' AND agent_id LIKE 'agent-%'
GROUP BY thread_id HAVING count(*) > 5 LIMIT $1
"""


async def upkeep(
    url: str, http: aiohttp.ClientSession, client: HoldfastClient, base: str
) -> list[Line]:
    lines = [await _deletions(url, http, base)]
    database = await Database.open(url, DatabaseOptions(pool_size=2, hot_pool_size=2))
    try:
        lines.append(await _sweeps(database))
        jobs = dict(retention_jobs(AGES))
        lines += [line for name, job in jobs.items() if (line := await _job(database, name, job))]
        lines.append(await _meanwhile(database, client))
    finally:
        await database.close()
    return lines


async def _deletions(url: str, http: aiohttp.ClientSession, base: str) -> Line:
    connection = await asyncpg.connect(asyncpg_dsn(url))
    found = [row[0] for row in await connection.fetch(_THREADS, DELETIONS)]
    await connection.close()
    taken = []
    for thread_id in found:
        began = time.perf_counter()
        async with http.delete(f"{base}/v1/threads/{thread_id}") as response:
            response.raise_for_status()
        taken.append(time.perf_counter() - began)
    return _timed("deletion of a thread with 9 runs", taken, DELETION)


async def _sweeps(database: Database) -> Line:
    """The searches for runs that a worker should execute, and for children of runs. Each process that sweeps makes them."""
    taken = []
    for _ in range(TRANSACTIONS):
        began = time.perf_counter()
        async with database.transaction() as connection:
            await unattended.without_owner(connection, heartbeat_timeout=10, grace=10, limit=100)
            await unattended.with_cancel_request(
                connection, heartbeat_timeout=10, grace=10, limit=100
            )
            await unattended.with_unnoticed_decision(connection, grace=10, limit=100)
            await unattended.with_unread_input(connection, grace=10, limit=100)
            await unattended.resumed(connection, grace=10, limit=100)
            await unattended.past_rate_limit(connection, grace=10, limit=100)
            await lost_followups.of_children(connection, grace=10, limit=100)
        taken.append(time.perf_counter() - began)
    return _timed("the sweeper's searches", taken, SHORT_TRANSACTION)


async def _job(database: Database, name: str, job: RetentionJob) -> Line | None:
    """The time of a job's transactions; None if it has nothing to do."""
    taken, rows = [], 0
    for _ in range(TRANSACTIONS):
        began = time.perf_counter()
        async with database.transaction() as connection:
            changed, is_more = await job(connection)
        taken.append(time.perf_counter() - began)
        rows += changed
        if not is_more:
            break
    if len(taken) < TRANSACTIONS:
        return None
    return _timed(f"{name}, {count(rows / TRANSACTIONS)} rows", taken, SHORT_TRANSACTION)


async def _meanwhile(database: Database, client: HoldfastClient) -> Line:
    """Short runs with and without all retention jobs beside them, alternately."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for is_working, found in rates.items():
            retention = Retention(database, AGES, interval=1)
            working = asyncio.create_task(retention.run_once()) if is_working else None
            found.append((await load(client.short, runs=300, at_once=8)).runs_per_second())
            retention.stop()
            if working is not None:
                await working
    ratio = median(beside / alone for alone, beside in zip(*rates.values(), strict=True))
    alone, beside = (count(median(each)) for each in rates.values())
    return Line("short runs/s beside it, 8 at a time", beside, alone, times(ratio), BESIDE, ratio)


def _timed(what: str, taken: list[float], mark: Mark) -> Line:
    p95 = quantiles(taken, n=20)[-1]
    return Line(
        what, f"{milliseconds(median(taken))}, p95 {milliseconds(p95)}", mark=mark, judged=p95
    )
