"""Totals of a period are the same with sums of hours and days as from the ledger alone."""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import pytest

from app.clock import SystemClock
from app.domain.ids import AgentId, Tenant
from app.domain.structs import replace
from app.domain.usage.totals import UsageFilter, UsageGroup, UsageTotal
from app.storage.postgres.connection import Driver
from app.storage.postgres.database import Database, RawPool
from app.storage.usage import ledger, sums, totals
from app.workers.periodic import retention
from app.workers.periodic.retention import Retention, RetentionAges
from tests.support.stored_runs import TENANT

pytestmark = pytest.mark.anyio

NOW = SystemClock().now
OTHER = Tenant("other")
DAY = timedelta(days=1)
GROUPS: tuple[tuple[UsageGroup, ...], ...] = (
    (UsageGroup.MODEL,),
    (UsageGroup.AGENT, UsageGroup.DAY),
    (UsageGroup.PROVIDER, UsageGroup.KIND),
    (UsageGroup.SUBJECT,),
    (UsageGroup.AGENT, UsageGroup.SUBJECT, UsageGroup.DAY),
)
_INSERT = """
INSERT INTO usage (tenant, thread_id, run_id, attempt, step_index, number, at, root_run_id, agent_id, subject, model,
    provider, kind, input, output, cache_read, cache_write, reasoning, cost_micros, priced_by)
SELECT $1, gen_random_uuid(), id, 1, 0, 1, coalesce($2, now()), id, $3, $4, $5, 'house', $6, $7, 2, 3, 4, 5, $8,
    CASE WHEN $8::bigint IS NOT NULL THEN 'a test' END
FROM (SELECT gen_random_uuid() AS id) AS run
"""
_FORGET_SUMS = "TRUNCATE usage_hours, usage_days, usage_summed"
_UNTIL = "SELECT until FROM usage_summed"
_COUNT = "SELECT count(*) FROM usage WHERE tenant = $1 AND at >= $2 AND at < $3"
AT_ONCE = -3600.0
"""The hour that hasn't ended counts as settled, too."""
_COPY = """
CREATE TABLE kept AS SELECT 'hours' AS of, h::text AS row FROM usage_hours h
UNION ALL SELECT 'days', d::text FROM usage_days d UNION ALL SELECT 'summed', s::text FROM usage_summed s
"""


async def bill(
    driver: "RawPool | Driver", chosen: Random, at: datetime | None, tenant: Tenant = TENANT
) -> None:
    """Add a request to the ledger; without a time, as a run does it."""
    await driver.execute(
        _INSERT,
        tenant,
        at,
        chosen.choice(["writer", "reader"]),
        chosen.choice(["ann", "bob"]),
        chosen.choice(["large", "small"]),
        chosen.choice(["inference", "compaction"]),
        chosen.randrange(1000),
        chosen.choice([None, 7]),
    )


async def sum_hours(
    database: Database, most: int = 10_000, settled: float = sums.SETTLED_SECONDS
) -> int:
    """Sum the next hours, at most so many. Returns how many were settled."""
    for hours in range(most):
        async with database.transaction() as connection:
            if await sums.sum_next_hour(connection, settled) is None:
                return hours
    return most


async def total(
    database: Database, wanted: UsageFilter, groups: Sequence[UsageGroup], tenant: Tenant = TENANT
) -> Sequence[UsageTotal]:
    async with database.reading() as connection:
        return (await totals.page(connection, tenant, wanted, groups, after=None, limit=1000)).items


async def all_totals(
    database: Database, periods: Sequence[UsageFilter]
) -> list[Sequence[UsageTotal]]:
    return [await total(database, each, groups) for each, groups in product(periods, GROUPS)]


def some_periods(chosen: Random, now: datetime, days: int) -> list[UsageFilter]:
    """Periods that begin and end within hours, at their borders, and beyond all rows."""
    times = [now - chosen.random() * days * DAY for _ in range(4)]
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    times += [midnight - DAY, midnight - 2 * DAY + timedelta(hours=5), now - 2 * days * DAY]
    pairs = [(begin, end) for begin, end in product(times, [*times, now]) if begin < end]
    filters: list[dict[str, Any]] = [
        {},
        {"agent_id": AgentId("writer")},
        {"subject": "ann"},
        {"model": "large"},
    ]
    return [
        replace(UsageFilter(begin=begin, end=end), **filters[n % 4])
        for n, (begin, end) in enumerate(pairs)
    ]


@pytest.mark.parametrize("seed", range(3))
async def test_totals_of_any_period_are_those_of_the_ledger(database: Database, seed: int) -> None:
    chosen, now, days = Random(seed), NOW(), 4
    for _ in range(150):
        at = now - chosen.random() * days * DAY
        await bill(database.pool, chosen, at, chosen.choice([TENANT, TENANT, OTHER]))
    periods = some_periods(chosen, now, days)
    expected = await all_totals(database, periods)
    assert any(expected)
    assert await sum_hours(database, most=chosen.randrange(1, 90))
    assert await all_totals(database, periods) == expected
    await sum_hours(database)
    assert await all_totals(database, periods) == expected
    await database.pool.execute(_FORGET_SUMS)
    assert await all_totals(database, periods) == expected


async def test_requests_after_the_last_summed_hour_count(database: Database) -> None:
    chosen, now = Random(0), NOW()
    wanted = UsageFilter(begin=now - 3 * DAY, end=now + DAY)
    await bill(database.pool, chosen, now - 2 * DAY)
    assert await sum_hours(database)
    for billed in range(2, 5):
        await bill(database.pool, chosen, None)
        for groups in GROUPS:
            assert sum(each.requests for each in await total(database, wanted, groups)) == billed


async def test_totals_after_retention_are_those_of_the_rows_that_are_left(
    database: Database,
) -> None:
    chosen, now = Random(1), NOW()
    for hours in range(72):
        await bill(
            database.pool, chosen, now - timedelta(hours=hours, minutes=chosen.randrange(60))
        )
    await sum_hours(database)
    age = timedelta(hours=40, minutes=20)
    periods = [UsageFilter(begin=each.begin, end=each.end) for each in some_periods(chosen, now, 4)]
    for rows_at_once in (1, 1000):
        async with database.transaction() as connection:
            assert await ledger.delete_old(connection, age.total_seconds(), rows_at_once)
        for wanted, groups in product(periods, GROUPS):
            left = await database.pool.fetchval(_COUNT, TENANT, wanted.begin, wanted.end)
            assert sum(each.requests for each in await total(database, wanted, groups)) == left
    assert await database.pool.fetchval("SELECT min(at) FROM usage_hours") > now - age


async def test_an_hour_is_summed_when_no_transaction_is_left_that_began_in_it(
    database: Database,
) -> None:
    chosen, now = Random(0), NOW()
    wanted = UsageFilter(begin=now - DAY, end=now + DAY)
    await bill(database.pool, chosen, now - timedelta(hours=1))
    async with database.transaction() as running:
        await bill(running.driver, chosen, None)
        await sum_hours(database, settled=AT_ONCE)
        assert await database.pool.fetchval(_UNTIL) <= NOW()
    await sum_hours(database, settled=AT_ONCE)
    assert await database.pool.fetchval(_UNTIL) > now
    for groups in GROUPS:
        assert sum(each.requests for each in await total(database, wanted, groups)) == 2


async def test_the_retention_job_sums_each_hour_once(database: Database) -> None:
    chosen, now = Random(0), NOW()
    for hours in range(1, 30):
        await bill(database.pool, chosen, now - timedelta(hours=hours))
    job = Retention(database, RetentionAges(), interval=60)
    assert (await job.run_once())["sum_usage"] >= 28
    await database.pool.execute(_COPY)
    assert (await job.run_once())["sum_usage"] == 0
    await database.pool.execute(_COPY.replace("TABLE kept", "TABLE again"))
    assert await database.pool.fetch("(TABLE kept EXCEPT TABLE again)") == []
    assert await database.pool.fetchval("SELECT sum(requests) FROM usage_hours") >= 28


async def test_retention_pauses_longer_than_each_transaction_took(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(_: asyncio.Event, seconds: float) -> bool:
        pauses.append(seconds)
        return True

    monkeypatch.setattr(retention, "wait_for_next", pause)
    await bill(database.pool, Random(0), NOW() - timedelta(hours=4))
    began = time.perf_counter()
    await Retention(database, RetentionAges(), interval=60).run_once()
    took = time.perf_counter() - began
    assert len(pauses) >= 3
    assert all(pauses)
    assert sum(pauses) < took * retention.PAUSE_PER_WORK
