"""Appends the events of many runs in one statement, and finds out whether a lost commit took place."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from app.domain.ids import RunId, Tenant, ThreadId
from app.storage.events.columns import EVENTS, event_values
from app.storage.events.event_log import EventEntry
from app.storage.postgres.database import RawPool
from app.storage.postgres.named_parameters import NamedSql, Rows

_RUN = {"tenant": "text", "thread_id": "uuid", "run_id": "uuid"}
_ATTEMPTS = Rows("w", {**_RUN, "attempt": "int", "n": "int"}, numbered="i")
_RUNS = Rows("w", _RUN, numbered="i")

_FLUSH = NamedSql(f"""
WITH wanted AS (
    SELECT * FROM {_ATTEMPTS.sql}
), locked AS (
    SELECT w.i, w.n, h.tenant, h.thread_id FROM wanted w
    JOIN event_heads h ON h.tenant = w.tenant AND h.thread_id = w.thread_id
    WHERE h.run_id = w.run_id AND h.attempt = w.attempt
    ORDER BY h.tenant, h.thread_id
    FOR NO KEY UPDATE OF h SKIP LOCKED
), head AS (
    UPDATE event_heads h SET next_seq = h.next_seq + l.n FROM locked l
    WHERE h.tenant = l.tenant AND h.thread_id = l.thread_id
    RETURNING l.i, h.next_seq - l.n AS first_seq
), event AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, step, ts, event_type, body)
    SELECT w.tenant, w.thread_id, head.first_seq + e.position, w.run_id, e.step, :at, e.event_type, e.body
    FROM {EVENTS.sql} JOIN wanted w ON w.i = e.i JOIN head ON head.i = e.i
)
SELECT i, first_seq FROM head
""")

_HEADS_HELD = NamedSql(f"""
SELECT w.i FROM {_ATTEMPTS.sql}
JOIN event_heads h ON h.tenant = w.tenant AND h.thread_id = w.thread_id
    AND h.run_id = w.run_id AND h.attempt = w.attempt
""")


class Flush(Struct, frozen=True):
    """The events of one run since its last flush, with the attempt that emitted them."""

    tenant: Tenant
    thread_id: ThreadId
    run_id: RunId
    attempt: int
    entries: Sequence[EventEntry]


async def flush(pool: RawPool, flushes: Sequence[Flush], at: datetime) -> dict[int, int]:
    """Number and append the events of many runs in one commit.

    Returns the first seq for each index that was written. Of a missing index the event head was locked, or
    another worker owns the run: `still_owned` distinguishes the two.
    """
    rows = await pool.fetch(
        *_FLUSH(at=at, **_attempts(flushes), **event_values(flush.entries for flush in flushes))
    )
    return {row["i"] - 1: row["first_seq"] for row in rows}


async def still_owned(pool: RawPool, flushes: Sequence[Flush]) -> set[int]:
    """The indexes whose run still has this attempt. Waits for no lock."""
    rows = await pool.fetch(*_HEADS_HELD(**_attempts(flushes)))
    return {row["i"] - 1 for row in rows}


def _attempts(flushes: Sequence[Flush]) -> dict[str, Any]:
    return _ATTEMPTS.values(
        {
            "tenant": flush.tenant,
            "thread_id": flush.thread_id,
            "run_id": flush.run_id,
            "attempt": flush.attempt,
            "n": len(flush.entries),
        }
        for flush in flushes
    )


_WAIT_FOR_LOCKS = NamedSql(f"""
WITH thread AS (
    SELECT t.tenant, t.id FROM {_RUNS.sql}
    JOIN threads t ON t.tenant = w.tenant AND t.id = w.thread_id
    ORDER BY t.tenant, t.id
    FOR NO KEY UPDATE OF t
)
SELECT FROM thread JOIN event_heads h ON h.tenant = thread.tenant AND h.thread_id = thread.id
ORDER BY h.tenant, h.thread_id
FOR NO KEY UPDATE OF h
""")

_COMMITTED = NamedSql(f"""
SELECT w.i, coalesce(min(e.seq), 0) AS first_seq
FROM {_RUNS.sql}
LEFT JOIN events e ON e.tenant = w.tenant AND e.thread_id = w.thread_id AND e.run_id = w.run_id
    AND e.ts = :at
LEFT JOIN runs r ON r.tenant = w.tenant AND r.id = w.run_id AND r.updated_at = :at
WHERE e.seq IS NOT NULL OR r.id IS NOT NULL
GROUP BY w.i
""")


async def find_committed(
    pool: RawPool, runs: Sequence[tuple[Tenant, ThreadId, RunId]], at: datetime
) -> dict[int, int]:
    """After a connection died during a commit: the indexes of the runs that were written at `at`.

    Returns the first event seq of each; 0 for a checkpoint without events. The server may still execute that
    commit, so this takes the same locks first.
    """
    keys = _RUNS.values(dict(zip(_RUN, run, strict=True)) for run in runs)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(*_WAIT_FOR_LOCKS(**keys))
        rows = await connection.fetch(*_COMMITTED(at=at, **keys))
    return {row["i"] - 1: row["first_seq"] for row in rows}
