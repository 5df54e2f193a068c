"""Fills the tables with finished and waiting runs, by SQL: copies of one run of each kind.

One thread was used per minute until now. A copy differs in its ids, times, agent, metadata and termination. It is made from the row's JSON, so that
a new column needs no change here.
"""

from dataclasses import dataclass

import asyncpg

RUNS_PER_THREAD = 10
BATCH_THREADS = 5_000

_THREAD = """
INSERT INTO threads SELECT r.* FROM generate_series($2::int, $3::int) AS n, threads t,
    jsonb_populate_record(t, jsonb_build_object('id', thread_id(n), 'open_run_id', NULL,
        'latest_run_id', run_id(n * $4::int + $4), 'title', 'Order ' || n || ' of ' || word_of(n),
        'created_at', day(n), 'updated_at', day(n), 'metadata', jsonb_build_object('plan', n % 3))) AS r
WHERE t.id = $1
"""
_RUNS = """
INSERT INTO runs SELECT r.* FROM generate_series($2::int, $3::int) AS n,
    generate_series(1, $4::int) AS turn, runs t,
    LATERAL (SELECT n * $4 + turn AS i) AS run,
    jsonb_populate_record(t, jsonb_build_object('id', run_id(i), 'root_run_id', run_id(i),
        'thread_id', thread_id(n), 'agent_id', agent_of(i), 'termination', termination_of(i),
        'input_from', turn * 2 - 1, 'input_to', turn * 2 - 1,
        'created_at', day(n) + turn * interval '1 minute', 'started_at', day(n),
        'finished_at', day(n), 'updated_at', day(n), 'metadata', metadata_of(n, i))) AS r
WHERE t.id = $1
"""
_WAITING = """
INSERT INTO runs SELECT r.* FROM generate_series($2::int, $3::int) AS n, runs t,
    jsonb_populate_record(t, jsonb_build_object('id', waiting_id(n), 'root_run_id', waiting_id(n),
        'thread_id', thread_id(n), 'agent_id', agent_of(n), 'created_at', day(n),
        'metadata', metadata_of(n, n))) AS r
WHERE t.id = $1 AND n % 100 = 0
"""
_TICKETS = """
INSERT INTO tickets SELECT k.* FROM generate_series($2::int, $3::int) AS n,
    runs r, tickets t,
    jsonb_populate_record(t, jsonb_build_object('id', md5('ticket' || n)::uuid, 'run_id', r.id,
        'thread_id', r.thread_id, 'agent_id', r.agent_id, 'created_at', r.created_at)) AS k
WHERE t.run_id = $1 AND r.tenant = t.tenant AND r.id = waiting_id(n)
"""
_MESSAGES = """
INSERT INTO messages SELECT m.* FROM generate_series($2::int, $3::int) AS n,
    generate_series(1, $4::int) AS turn, messages t,
    LATERAL (SELECT turn * 2 - 2 + t.seq AS seq) AS place,
    jsonb_populate_record(t, jsonb_build_object('thread_id', thread_id(n), 'seq', place.seq,
        'message_id', md5('message' || n || '.' || place.seq)::uuid, 'created_at', day(n))) AS m
WHERE t.thread_id = $1
"""
_USAGE = """
INSERT INTO usage SELECT u.* FROM generate_series($2::int, $3::int) AS n,
    generate_series(1, $4::int) AS turn, usage t,
    LATERAL (SELECT n * $4 + turn AS i) AS run,
    jsonb_populate_record(t, jsonb_build_object('thread_id', thread_id(n), 'run_id', run_id(i),
        'root_run_id', run_id(i), 'agent_id', agent_of(i), 'at', day(n))) AS u
WHERE t.run_id = $1
"""
_EVENTS = """
INSERT INTO events SELECT e.* FROM generate_series($2::int, $3::int) AS n,
    generate_series(1, $4::int) AS turn, events t,
    jsonb_populate_record(t, jsonb_build_object('thread_id', thread_id(n),
        'run_id', run_id(n * $4 + turn), 'seq', turn * 100 + t.seq)) AS e
WHERE t.run_id = $1
"""
_FUNCTIONS = """
CREATE SCHEMA fill;
CREATE FUNCTION fill.thread_id(n bigint) RETURNS uuid IMMUTABLE LANGUAGE sql
    AS $$ SELECT md5('thread' || n)::uuid $$;
CREATE FUNCTION fill.run_id(i bigint) RETURNS uuid IMMUTABLE LANGUAGE sql
    AS $$ SELECT md5('run' || i)::uuid $$;
CREATE FUNCTION fill.waiting_id(n bigint) RETURNS uuid IMMUTABLE LANGUAGE sql
    AS $$ SELECT md5('waiting' || n)::uuid $$;
CREATE TABLE fill.size AS SELECT 0 AS threads;
CREATE FUNCTION fill.day(n bigint) RETURNS timestamptz STABLE LANGUAGE sql
    AS $$ SELECT now() - (size.threads - n) * interval '1 minute' FROM fill.size $$;
CREATE FUNCTION fill.word_of(n bigint) RETURNS text IMMUTABLE LANGUAGE sql
    AS $$ SELECT CASE WHEN n % 1000 = 0 THEN 'zinc' ELSE 'paper' END $$;
CREATE FUNCTION fill.agent_of(i bigint) RETURNS text IMMUTABLE LANGUAGE sql
    AS $$ SELECT CASE WHEN i % 20000 = 0 THEN 'rare' ELSE 'agent-' || i % 7 END $$;
CREATE FUNCTION fill.termination_of(i bigint) RETURNS jsonb IMMUTABLE LANGUAGE sql AS $$
    SELECT CASE WHEN i % 20000 = 1 THEN '{"type": "blocked", "detail": "policy"}'
        WHEN i % 50 = 2 THEN '{"type": "cancelled"}' ELSE '{"type": "natural_end"}' END::jsonb $$;
CREATE FUNCTION fill.metadata_of(n bigint, i bigint) RETURNS jsonb IMMUTABLE LANGUAGE sql AS $$
    SELECT CASE WHEN i % 3 = 0 THEN jsonb_build_object('customer', 'c-' || n, 'plan', 'plan-' || i % 4)
        ELSE '{}' END $$;
"""


@dataclass(frozen=True, slots=True)
class Templates:
    """Runs that were executed, of which copies are made."""

    finished_run: str
    waiting_run: str
    thread: str


async def fill(connection: asyncpg.Connection, templates: Templates, runs: int) -> None:
    """Insert copies until there are about so many runs, then bring the statistics up to date."""
    # Triggers check references, which are right here.
    await connection.execute("SET session_replication_role = replica")
    await connection.execute("SET search_path = public, fill")
    await connection.execute(_FUNCTIONS)
    threads = runs // RUNS_PER_THREAD
    await connection.execute("UPDATE fill.size SET threads = $1", threads)
    for first in range(1, threads + 1, BATCH_THREADS):
        last = min(threads, first + BATCH_THREADS - 1)
        await connection.execute(_THREAD, templates.thread, first, last, RUNS_PER_THREAD)
        await connection.execute(_RUNS, templates.finished_run, first, last, RUNS_PER_THREAD)
        await connection.execute(_WAITING, templates.waiting_run, first, last)
        await connection.execute(_TICKETS, templates.waiting_run, first, last)
        await connection.execute(_MESSAGES, templates.thread, first, last, RUNS_PER_THREAD)
        await connection.execute(_USAGE, templates.finished_run, first, last, RUNS_PER_THREAD)
        await connection.execute(_EVENTS, templates.finished_run, first, last, RUNS_PER_THREAD)
    await connection.execute("DROP SCHEMA fill CASCADE")
    await connection.execute("VACUUM (ANALYZE)")
