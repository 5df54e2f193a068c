"""Sums of the usage ledger by hour and by day, so that a total of a month reads few rows.

`usage_summed` says from which to which hour the ledger is summed. One statement adds an hour and moves that bound, so a
reader sees both or neither. A total takes the sums within the bounds, and the ledger's rows before and after them.

A row of the ledger has the time at which its transaction began. So an hour is summed when no transaction is left that
began before its end.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from app.storage.postgres.database import Connection
from app.storage.postgres.named_parameters import NamedSql

SETTLED_SECONDS = 600.0
"""Age at which an hour may be summed. Longer than any transaction, also of sessions whose state this role can't see."""

_COUNTED = ("requests", "input", "output", "cache_read", "cache_write", "reasoning", "unpriced")
_SUMMED = ", ".join((*_COUNTED, "cost_micros"))
_SUMS = ", ".join(f"sum({name})::bigint" for name in (*_COUNTED, "cost_micros"))
_ADDED = ", ".join(f"{name} = d.{name} + excluded.{name}" for name in _COUNTED)

_BEGIN = """
INSERT INTO usage_summed (since, until)
SELECT day, day FROM (SELECT date_trunc('day', min(at), 'UTC') AS day FROM usage) AS first WHERE day IS NOT NULL
ON CONFLICT DO NOTHING
"""
_IS_BEGUN = "SELECT EXISTS (SELECT FROM usage_summed)"
# The next hour, if it is settled.
_NEXT = NamedSql("""
SELECT s.until AS begin, s.until + interval '1 hour' AS end FROM usage_summed s
WHERE s.until + interval '1 hour' <= now() - :settled::interval AND NOT EXISTS (
    SELECT FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
        AND a.xact_start < s.until + interval '1 hour')
FOR UPDATE OF s
""")
_SUM = NamedSql(f"""
WITH summed AS MATERIALIZED (
    SELECT tenant, agent_id, model, provider, kind, subject, count(*) AS requests, sum(input) AS input,
        sum(output) AS output, sum(cache_read) AS cache_read, sum(cache_write) AS cache_write,
        sum(reasoning) AS reasoning, sum(cost_micros) AS cost_micros,
        count(*) FILTER (WHERE cost_micros IS NULL) AS unpriced
    FROM usage WHERE at >= :begin::timestamptz AND at < :end::timestamptz
    GROUP BY tenant, agent_id, model, provider, kind, subject
), by_hour AS (
    INSERT INTO usage_hours (tenant, at, agent_id, model, provider, kind, {_SUMMED})
    SELECT tenant, :begin, agent_id, model, provider, kind, {_SUMS} FROM summed
    GROUP BY tenant, agent_id, model, provider, kind
), by_day AS (
    INSERT INTO usage_days AS d (tenant, at, agent_id, model, provider, kind, subject, {_SUMMED})
    SELECT tenant, date_trunc('day', :begin::timestamptz, 'UTC'), agent_id, model, provider, kind, subject, {_SUMS}
    FROM summed GROUP BY tenant, agent_id, model, provider, kind, subject
    ON CONFLICT (tenant, at, agent_id, model, provider, kind, subject) DO UPDATE
        SET {_ADDED}, cost_micros = CASE WHEN d.cost_micros IS NULL THEN excluded.cost_micros
            ELSE d.cost_micros + coalesce(excluded.cost_micros, 0) END
), moved AS (
    UPDATE usage_summed SET until = :end
)
SELECT count(*) FROM summed
""")
# What the ledger loses isn't in a sum that is read: the bound is moved to the next hour before.
_FORGET = NamedSql("""
WITH moved AS (
    UPDATE usage_summed SET since = greatest(since, hour), until = greatest(until, hour)
    FROM (SELECT date_trunc('hour', now() - :age::interval, 'UTC') + interval '1 hour' AS hour) AS oldest
    WHERE since < hour
    RETURNING since
), hours AS (
    DELETE FROM usage_hours USING moved WHERE at < moved.since
)
DELETE FROM usage_days USING moved WHERE at < moved.since
""")


class Hour(Struct, frozen=True):
    begin: datetime
    end: datetime


async def sum_next_hour(connection: Connection, settled: float = SETTLED_SECONDS) -> int | None:
    """Sum the next hour of all tenants. Returns the number of sums; None if no hour is settled."""
    if (hour := await _next_hour(connection, settled)) is None:
        return None
    # A statement of its own: it reads what was committed before the check.
    sums: int = await connection.driver.fetchval(*_SUM(begin=hour.begin, end=hour.end))
    return sums


async def _next_hour(connection: Connection, settled: float) -> Hour | None:
    driver = connection.driver
    if not await driver.fetchval(_IS_BEGUN):
        await driver.execute(_BEGIN)
    row = await driver.fetchrow(*_NEXT(settled=timedelta(seconds=settled)))
    return None if row is None else Hour(row["begin"], row["end"])


async def forget_old(connection: Connection, older_than: float) -> None:
    """Delete the sums that may have rows of at least this age. Totals read the ledger instead."""
    await connection.driver.execute(*_FORGET(age=timedelta(seconds=older_than)))
