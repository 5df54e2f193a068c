"""Fills the tables with finished and waiting runs, by SQL: copies of one run of each kind.

One thread with nine short runs, and one with an approved call, were used per minute until now. A copy differs in its ids,
times, agent, metadata and termination. It is made from the row's JSON, so that a new column needs no change here.
"""

from dataclasses import dataclass
from hashlib import md5
from uuid import UUID

import aiohttp
import asyncpg

from bench.clients import HoldfastClient

TURNS = 9
RUNS_PER_MINUTE = TURNS + 1
BATCH_MINUTES = 5_000

_FUNCTIONS = f"""
CREATE SCHEMA fill;
CREATE TABLE fill.size AS SELECT 0 AS minutes;
CREATE FUNCTION fill.id(kind text, n bigint) RETURNS uuid IMMUTABLE LANGUAGE sql
    AS $$ SELECT md5(kind || n)::uuid $$;
CREATE FUNCTION fill.at(n bigint, turn bigint) RETURNS timestamptz STABLE LANGUAGE sql
    AS $$ SELECT now() - (size.minutes - n) * interval '1 minute' + turn * interval '5 seconds' FROM fill.size $$;
CREATE FUNCTION fill.word_of(n bigint) RETURNS text IMMUTABLE LANGUAGE sql
    AS $$ SELECT CASE WHEN n % 1000 = 0 THEN 'zinc' ELSE 'paper' END $$;
CREATE FUNCTION fill.agent_of(i bigint) RETURNS text IMMUTABLE LANGUAGE sql
    AS $$ SELECT CASE WHEN i % 20000 = 0 THEN 'rare' ELSE 'agent-' || i % 7 END $$;
CREATE FUNCTION fill.termination_of(i bigint) RETURNS jsonb IMMUTABLE LANGUAGE sql AS $$
    SELECT CASE WHEN i % 20000 = 1 THEN '{{"type": "blocked", "detail": "policy"}}'
        WHEN i % 100 = 3 THEN '{{"type": "error", "code": "model_overloaded", "detail": "no"}}'
        WHEN i % 50 = 2 THEN '{{"type": "cancelled"}}' ELSE '{{"type": "natural_end"}}' END::jsonb $$;
CREATE FUNCTION fill.metadata_of(n bigint, i bigint) RETURNS jsonb IMMUTABLE LANGUAGE sql AS $$
    SELECT CASE WHEN i % 3 = 0 THEN jsonb_build_object('customer', 'c-' || n, 'plan', 'plan-' || i % 4)
        ELSE '{{}}' END $$;
-- The run above the runs of a thread: those of a hundred threads belong to one tree, and each fiftieth thread to the run before.
CREATE FUNCTION fill.parent_of(n bigint) RETURNS uuid IMMUTABLE LANGUAGE sql AS $$
    SELECT CASE WHEN n BETWEEN 2 AND 100 THEN fill.id('run', {TURNS + 1})
        WHEN n % 50 = 0 THEN fill.id('run', (n - 1) * {TURNS} + 1) END $$;
"""

# $1: the run that is copied; $2 and $3: the first and the last minute.
_MINUTES = "generate_series($2::int, $3::int) AS n"
_TURNS = f"{_MINUTES}, generate_series(1, {TURNS}) AS turn, LATERAL (SELECT n * {TURNS} + turn AS i) AS run"
_SHORT = [
    f"""INSERT INTO threads SELECT r.* FROM {_MINUTES}, runs k, threads t,
    jsonb_populate_record(t, jsonb_build_object('id', id('thread', n), 'open_run_id', NULL,
        'latest_run_id', id('run', n * {TURNS} + {TURNS}), 'title', 'Order ' || n || ' of ' || word_of(n),
        'next_message_seq', {TURNS} * 2 + 1,
        'created_at', at(n, 0), 'updated_at', at(n, {TURNS}), 'metadata', jsonb_build_object('plan', n % 3))) AS r
WHERE k.id = $1 AND t.tenant = k.tenant AND t.id = k.thread_id""",
    f"""INSERT INTO event_heads SELECT r.* FROM {_MINUTES}, runs k, event_heads t,
    jsonb_populate_record(t, jsonb_build_object('thread_id', id('thread', n), 'run_id', id('run', n * {TURNS} + {TURNS}),
        'next_seq', {TURNS} * 100 + t.next_seq)) AS r
WHERE k.id = $1 AND t.tenant = k.tenant AND t.thread_id = k.thread_id""",
    f"""INSERT INTO runs SELECT r.* FROM {_TURNS}, runs t,
    jsonb_populate_record(t, jsonb_build_object('id', id('run', i), 'root_run_id', coalesce(parent_of(n), id('run', i)),
        'parent_run_id', parent_of(n), 'depth', (parent_of(n) IS NOT NULL)::int,
        'thread_id', id('thread', n), 'agent_id', agent_of(i), 'termination', termination_of(i),
        'input_from', turn * 2 - 1, 'input_to', turn * 2 - 1, 'output_from', turn * 2, 'output_to', turn * 2,
        'events_from', turn * 100 + t.events_from,
        'created_at', at(n, turn), 'started_at', at(n, turn),
        'finished_at', at(n, turn + 1), 'updated_at', at(n, turn + 1), 'metadata', metadata_of(n, i))) AS r
WHERE t.id = $1""",
    f"""INSERT INTO messages SELECT m.* FROM {_TURNS}, runs k, messages t,
    LATERAL (SELECT turn * 2 - 2 + t.seq AS seq) AS place,
    jsonb_populate_record(t, jsonb_build_object('thread_id', id('thread', n), 'seq', place.seq,
        'message_id', md5('message' || n || '.' || place.seq)::uuid, 'created_at', at(n, turn))) AS m
WHERE k.id = $1 AND t.tenant = k.tenant AND t.thread_id = k.thread_id""",
    f"""INSERT INTO usage SELECT u.* FROM {_TURNS}, usage t,
    jsonb_populate_record(t, jsonb_build_object('thread_id', id('thread', n), 'run_id', id('run', i),
        'root_run_id', coalesce(parent_of(n), id('run', i)), 'agent_id', agent_of(i), 'subject', 'team-' || n % 20,
        'at', at(n, turn))) AS u
WHERE t.run_id = $1""",
    f"""INSERT INTO events SELECT e.* FROM {_TURNS}, events t,
    jsonb_populate_record(t, jsonb_build_object('thread_id', id('thread', n), 'run_id', id('run', i),
        'seq', turn * 100 + t.seq, 'ts', at(n, turn))) AS e
WHERE t.run_id = $1""",
]


def _alone(kind: str, chosen: str) -> list[str]:
    """Statements that copy a run with a ticket, on a thread of its own, for each chosen minute."""
    minutes = f"(SELECT n FROM {_MINUTES} WHERE {chosen}) AS n(n)"
    ids = f"'thread_id', id('{kind}-thread', n), 'run_id', id('{kind}', n)"
    ticket = f"id('{kind}-ticket', n)"
    return [
        f"""INSERT INTO threads SELECT r.* FROM {minutes}, runs k, threads t,
    jsonb_populate_record(t, jsonb_build_object('id', id('{kind}-thread', n), 'latest_run_id', id('{kind}', n),
        'open_run_id', CASE WHEN t.open_run_id IS NOT NULL THEN id('{kind}', n) END,
        'created_at', at(n, 0), 'updated_at', at(n, 1))) AS r
WHERE k.id = $1 AND t.tenant = k.tenant AND t.id = k.thread_id""",
        f"""INSERT INTO event_heads SELECT r.* FROM {minutes}, event_heads t,
    jsonb_populate_record(t, jsonb_build_object({ids})) AS r WHERE t.run_id = $1""",
        f"""INSERT INTO runs SELECT r.* FROM {minutes}, runs t,
    jsonb_populate_record(t, jsonb_build_object('id', id('{kind}', n), 'root_run_id', id('{kind}', n),
        'thread_id', id('{kind}-thread', n), 'agent_id', agent_of(n), 'created_at', at(n, 0),
        'finished_at', CASE WHEN t.finished_at IS NOT NULL THEN at(n, 1) END, 'updated_at', at(n, 1),
        'metadata', metadata_of(n, n))) AS r
WHERE t.id = $1""",
        f"""INSERT INTO tickets SELECT r.* FROM {minutes}, tickets t,
    jsonb_populate_record(t, jsonb_build_object('id', {ticket}, {ids}, 'agent_id', agent_of(n),
        'created_at', at(n, 0), 'updated_at', at(n, 1),
        'expires_at', CASE WHEN n % 30 = 0 THEN at(n, 0) + interval '100 days' END,
        'applied_at', CASE WHEN t.applied_at IS NOT NULL THEN at(n, 1) END)) AS r
WHERE t.run_id = $1""",
        f"""INSERT INTO decisions SELECT r.* FROM {minutes}, tickets k, decisions t,
    jsonb_populate_record(t, jsonb_build_object('ticket', {ticket}, 'at', at(n, 1))) AS r
WHERE k.run_id = $1 AND t.tenant = k.tenant AND t.ticket = k.id""",
        f"""INSERT INTO ticket_feed (tenant, ticket, kind, decision_id, at)
SELECT t.tenant, {ticket}, t.kind, t.decision_id, at(n, 0) FROM {minutes}, tickets k, ticket_feed t
WHERE k.run_id = $1 AND t.tenant = k.tenant AND t.ticket = k.id""",
        f"""INSERT INTO tool_calls SELECT r.* FROM {minutes}, tool_calls t,
    jsonb_populate_record(t, jsonb_build_object('run_id', id('{kind}', n))) AS r WHERE t.run_id = $1""",
        f"""INSERT INTO messages SELECT r.* FROM {minutes}, runs k, messages t,
    jsonb_populate_record(t, jsonb_build_object('thread_id', id('{kind}-thread', n),
        'message_id', md5('{kind}-message' || n || '.' || t.seq)::uuid, 'created_at', at(n, 0))) AS r
WHERE k.id = $1 AND t.tenant = k.tenant AND t.thread_id = k.thread_id""",
        f"""INSERT INTO usage SELECT r.* FROM {minutes}, usage t,
    jsonb_populate_record(t, jsonb_build_object({ids}, 'root_run_id', id('{kind}', n),
        'agent_id', agent_of(n), 'subject', 'team-' || n % 20, 'at', at(n, 0))) AS r
WHERE t.run_id = $1""",
        f"""INSERT INTO events SELECT r.* FROM {minutes}, tickets k, events t,
    jsonb_populate_record(t, jsonb_build_object({ids}, 'ts', at(n, 0),
        'body', replace(t.body, k.id::text, {ticket}::text))) AS r
WHERE k.run_id = $1 AND t.run_id = k.run_id""",
    ]


_APPROVED = _alone("approved", "true")
_WAITING = _alone("waiting", "n % 10 = 0")
# One for each tenth minute.
_FILES = [
    f"""INSERT INTO files SELECT r.* FROM {_MINUTES}, files t,
    jsonb_populate_record(t, jsonb_build_object('id', id('file', n), 'created_at', at(n, 0))) AS r
WHERE t.id = $1 AND n % 10 = 0""",
    f"""INSERT INTO file_threads SELECT t.tenant, id('thread', n), id('file', n) FROM {_MINUTES}, files t
WHERE t.id = $1 AND n % 10 = 0""",
]
# One for each tenth minute, and a thousand for each subject.
_MEMORIES = f"""INSERT INTO memories SELECT r.* FROM {_MINUTES}, memories t,
    jsonb_populate_record(t, jsonb_build_object('id', id('memory', n), 'key', 'order ' || n,
        'subject', 'customer-' || n / 10000, 'words', to_tsvector('simple', 'order ' || n || ' ' || word_of(n)),
        'created_at', at(n, 0), 'updated_at', at(n, 0))) AS r
WHERE t.id = $1 AND n % 10 = 0"""


_NEWEST_RUN = "SELECT id::text FROM runs ORDER BY created_at DESC LIMIT 1"
# In the order of the notices, as readers of the feed would do it. A reader may have numbered some.
_NUMBER_NOTICES = [
    "UPDATE ticket_feed SET number = NULL WHERE number IS NOT NULL",
    """UPDATE ticket_feed f SET number = n.number
FROM (SELECT id, row_number() OVER (ORDER BY at, id) AS number FROM ticket_feed) AS n WHERE f.id = n.id""",
    """INSERT INTO ticket_feed_heads (tenant, next_number)
SELECT tenant, max(number) + 1 FROM ticket_feed GROUP BY tenant
ON CONFLICT (tenant) DO UPDATE SET next_number = excluded.next_number""",
]


def copied_id(kind: str, n: int, *, of: str = "") -> str:
    """The id of the nth copy of a kind: `run`, `thread`, `approved` or `waiting`; or of its `thread` or `ticket`."""
    name = f"{kind}-{of}" if of else kind
    return str(UUID(md5(f"{name}{n}".encode(), usedforsecurity=False).hexdigest()))


@dataclass(frozen=True, slots=True)
class Templates:
    """The ids of rows of which copies are made: runs that were executed, a file, and a memory."""

    finished_run: str
    waiting_run: str
    approved_run: str
    file: str
    memory: str


async def templates(
    connection: asyncpg.Connection, http: aiohttp.ClientSession, base: str
) -> Templates:
    """Make a row of each kind over HTTP."""
    client = HoldfastClient(http, base)
    waiting = await client.suspend()
    await client.approval()
    approved = await connection.fetchval(_NEWEST_RUN)
    await client.short()
    short = await connection.fetchval(_NEWEST_RUN)
    async with http.post(f"{base}/v1/files", data=b"bytes") as response:
        response.raise_for_status()
        file = (await response.json())["id"]
    async with http.put(f"{base}/v1/memories/colour", json={"value": "green"}) as response:
        response.raise_for_status()
    memory = await connection.fetchval("SELECT id::text FROM memories LIMIT 1")
    return Templates(short, waiting, approved, file, memory)


async def fill(connection: asyncpg.Connection, templates: Templates, runs: int) -> None:
    """Insert copies until there are about so many runs, then bring the statistics up to date."""
    # Triggers check references, which are right here.
    await connection.execute("SET session_replication_role = replica")
    await connection.execute("SET synchronous_commit = off")
    await connection.execute("SET search_path = public, fill")
    await connection.execute(_FUNCTIONS)
    minutes = runs // RUNS_PER_MINUTE
    await connection.execute("UPDATE fill.size SET minutes = $1", minutes)
    statements = [
        *((sql, templates.finished_run) for sql in _SHORT),
        *((sql, templates.approved_run) for sql in _APPROVED),
        *((sql, templates.waiting_run) for sql in _WAITING),
        *((sql, templates.file) for sql in _FILES),
        (_MEMORIES, templates.memory),
    ]
    for first in range(1, minutes + 1, BATCH_MINUTES):
        last = min(minutes, first + BATCH_MINUTES - 1)
        for sql, template in statements:
            await connection.execute(sql, template, first, last)
    for sql in _NUMBER_NOTICES:
        await connection.execute(sql)
    await connection.execute("DROP SCHEMA fill CASCADE")
    await connection.execute("VACUUM (ANALYZE)")
