"""The database rows after a trial, which the checker compares with the history."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import asyncpg

from tests.support.invariants import broken_invariants

Row: TypeAlias = dict[str, Any]

_RUNS = """
SELECT id::text, thread_id::text, status, waiting_reason, termination::text, attempt, owner::text,
    retry_of::text, final_output, cancel_requested_at IS NOT NULL AS is_cancel_requested,
    metadata ->> 'mark' AS mark, agent_id, root_run_id::text, parent_run_id::text,
    parent_thread_id::text, parent_call_id, depth,
    extract(epoch FROM cancel_requested_at)::float8 AS cancelled_at,
    extract(epoch FROM finished_at)::float8 AS finished_at
FROM runs ORDER BY created_at
"""
_EVENTS = """
SELECT seq, thread_id::text, run_id::text, step, event_type, body FROM events ORDER BY thread_id, seq
"""
_ACTIVATIONS = """
SELECT run_id::text, event_type, ts, body::jsonb -> 'waiting' ->> 'reason' AS reason,
    (body::jsonb -> 'waiting' ->> 'until')::timestamptz AS until,
    -- Without the tickets of runs below, for which a run doesn't wait itself.
    jsonb_array_length(jsonb_path_query_array(
        body::jsonb, '$.waiting.tickets[*] ? (!exists(@.child))')) AS tickets
FROM events WHERE event_type IN ('run_start', 'run_finish') ORDER BY thread_id, seq
"""
_MESSAGES = """
SELECT thread_id::text, seq, role, content::text, tool_call_id, produced_by_run::text FROM messages ORDER BY thread_id, seq
"""
_INPUTS = "SELECT run_id::text, status, message::text FROM inputs"
_TICKETS = """
SELECT t.id::text, t.run_id::text, t.call_id, t.step_index, t.kind, t.tool_name, t.status,
    t.arguments::text, CASE WHEN t.kind = 'child' THEN t.evidence::text END AS work,
    t.applied_at IS NOT NULL AS is_applied, d.decision_id, d.action, d.payload::text, t.event_key,
    extract(epoch FROM d.at)::float8 AS decided_at
FROM tickets t LEFT JOIN decisions d
    ON d.tenant = t.tenant AND d.ticket = t.id AND d.effect = 'decided'
"""
_SIGNALS = """
SELECT id, key, status, response_status, extract(epoch FROM created_at)::float8 AS created_at FROM signals
"""
_TASKS = """
SELECT id, run_id::text, call_id, tool_name, status, result::text, child::text AS work FROM tasks
"""
_EFFECTS = """
SELECT tool, what, key, run_id::text, call_id, pid, attempt FROM chaos.effects ORDER BY id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Rows as read from the database; `events` are the objects that clients get, without their time."""

    runs: Sequence[Row] = ()
    events: Sequence[Row] = ()
    activations: Sequence[Row] = ()
    """`run_start` and `run_finish` of all runs, with their times and what the run waits for afterwards."""
    messages: Sequence[Row] = ()
    inputs: Sequence[Row] = ()
    tickets: Sequence[Row] = ()
    tasks: Sequence[Row] = ()
    signals: Sequence[Row] = ()
    effects: Sequence[Row] = ()
    broken_rows: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Violated invariants of `tests.support.invariants`, with their rows."""


async def read_truth(url: str) -> Truth:
    connection = await asyncpg.connect(url)
    try:
        return Truth(
            runs=[_parsed(dict(row), "termination") for row in await connection.fetch(_RUNS)],
            events=[_event(dict(row)) for row in await connection.fetch(_EVENTS)],
            activations=[dict(row) for row in await connection.fetch(_ACTIVATIONS)],
            messages=[dict(row) for row in await connection.fetch(_MESSAGES)],
            inputs=[dict(row) for row in await connection.fetch(_INPUTS)],
            tickets=[
                _parsed(dict(row), "arguments", "payload", "work")
                for row in await connection.fetch(_TICKETS)
            ],
            tasks=[_parsed(dict(row), "result", "work") for row in await connection.fetch(_TASKS)],
            signals=[dict(row) for row in await connection.fetch(_SIGNALS)],
            effects=[dict(row) for row in await connection.fetch(_EFFECTS)],
            broken_rows=await broken_invariants(url),
        )
    finally:
        await connection.close()


def _parsed(row: Row, *columns: str) -> Row:
    read = {name: None if row[name] is None else json.loads(row[name]) for name in columns}
    return {**row, **read}


def _event(row: Row) -> Row:
    envelope = {name: row[name] for name in ("seq", "thread_id", "run_id", "event_type")}
    step = {} if row["step"] is None else {"step": row["step"]}
    return {**envelope, **step, **json.loads(row["body"])}
