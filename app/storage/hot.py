"""The four hot stages of a run, one statement each: admit, claim, flush, checkpoint.

A statement per stage instead of a statement per step is worth three to four times the runs per
second. Each commits by itself, takes its locks in the order of the package, and makes every later part
depend on the locked rows: what isn't locked isn't written, so that each is all or nothing per run.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from app.domain.checkpoints import Checkpoint, Said
from app.domain.control_events import InputDelivered
from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.domain.json_values import JsonObject, storable
from app.domain.runs import Done, NewRun, RunRecord, RunStatus, status_of
from app.domain.terminations import termination_to_json
from app.domain.tool_calls import kept_to_json
from app.storage.codec import message_columns, parsed, run_of, storable_json
from app.storage.database import RawPool
from app.storage.events import Entry, entry

# --- admit ----------------------------------------------------------------------------------------

_ADMIT = """
WITH thread AS (
    INSERT INTO threads AS t (tenant, id, next_message_seq, open_run_id, latest_run_id)
    VALUES ($1, $2, 1 + $10, $3, $3)
    ON CONFLICT (tenant, id) DO UPDATE
        SET next_message_seq = t.next_message_seq + $10, open_run_id = $3, latest_run_id = $3,
            updated_at = now()
        WHERE t.open_run_id IS NULL AND t.queue_length = 0
    RETURNING t.next_message_seq - $10 AS first_seq, t.state
), head AS (
    INSERT INTO event_heads AS h (tenant, thread_id, next_seq, run_id, attempt)
    SELECT $1, $2, 1 + cardinality($16::text[]), $3, 1 FROM thread
    ON CONFLICT (tenant, thread_id) DO UPDATE
        SET next_seq = h.next_seq + cardinality($16::text[]), run_id = excluded.run_id,
            attempt = excluded.attempt
    RETURNING h.next_seq - cardinality($16::text[]) AS seq
), run AS (
    INSERT INTO runs (tenant, id, thread_id, agent_id, agent_version, status, admitted, root_run_id,
        parent_run_id, parent_thread_id, parent_call_id, depth, retry_of, request, request_digest,
        metadata, started_by, traceparent, attempt, owner, created_at, started_at, updated_at,
        events_from, input_from, input_to, input_ids)
    SELECT $1, $3, $2, $4, $5, 'running', true, $18, $19, $20, $21, $22, $23, $6::text::jsonb, $7,
        $8::text::jsonb, $9, $24, 1, $25, $15, $15, $15,
        head.seq, thread.first_seq, thread.first_seq + $10 - 1, $11::uuid[]
    FROM thread, head
), message AS (
    INSERT INTO messages (tenant, thread_id, seq, message_id, role, visibility, content, created_at)
    SELECT $1, $2, thread.first_seq + m.i - 1, m.id, m.role, m.visibility, m.content::jsonb, $15
    FROM thread, unnest($11::uuid[], $12::text[], $13::text[], $14::text[])
        WITH ORDINALITY AS m(id, role, visibility, content, i)
), event AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, ts, event_type, body)
    SELECT $1, $2, head.seq + e.i - 1, $3, $15, e.type, e.body
    FROM head, unnest($16::text[], $17::text[]) WITH ORDINALITY AS e(type, body, i)
)
SELECT thread.first_seq, thread.state::text, head.seq FROM thread, head
"""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The run is ours and running; its messages stand in the log from `first_message_seq` on."""

    first_message_seq: int
    event_seq: int
    thread_state: JsonObject = field(default_factory=dict)


async def admit(
    pool: RawPool, run: NewRun, owner: WorkerId, said: Sequence[Entry], at: datetime
) -> Admitted | None:
    """Create a run that this process executes at once, attempt 1, and log what is said of that.

    None, and nothing written, when its thread is occupied or queued for, or its id is taken.
    """
    try:
        row = await pool.fetchrow(_ADMIT, *_admit_arguments(run, owner, said, at))
    except asyncpg.UniqueViolationError:
        return None
    if row is None:
        return None
    return Admitted(row["first_seq"], row["seq"], parsed(row["state"]) or {})


def _admit_arguments(
    run: NewRun, owner: WorkerId, said: Sequence[Entry], at: datetime
) -> tuple[object, ...]:
    columns = [message_columns(message) for message in run.messages]
    lineage = run.lineage
    return (
        run.tenant,
        run.thread_id,
        run.id,
        run.agent_id,
        run.agent_version,
        storable_json(run.request),
        run.request_digest,
        storable_json(run.metadata),
        run.started_by,
        len(columns),
        [column["message_id"] for column in columns],
        [column["role"] for column in columns],
        [column["visibility"] for column in columns],
        [column["content"] for column in columns],
        at,
        [entry.event_type for entry in said],
        [entry.body for entry in said],
        lineage.root_run_id,
        lineage.parent_run_id,
        lineage.parent_thread_id,
        lineage.parent_call_id,
        lineage.depth,
        lineage.retry_of,
        run.traceparent,
        owner,
    )


# --- claim ----------------------------------------------------------------------------------------

_CLAIM = """
WITH thread AS (
    SELECT t.next_message_seq AS next_seq, t.state AS thread_state FROM threads t
    WHERE t.tenant = $1 AND t.id = $2 FOR NO KEY UPDATE
), locked AS (
    SELECT r.id, r.status AS was, r.owner AS lost_owner FROM runs r, thread
    WHERE r.tenant = $1 AND r.id = $3 AND r.admitted AND r.status <> 'done'
        AND (r.owner IS NULL OR NOT EXISTS (
            SELECT FROM workers w WHERE w.id = r.owner AND w.heartbeat_at > now() - $5::interval))
        AND NOT r.losses + (r.owner IS NOT NULL)::int = ANY($8::int[])
    FOR NO KEY UPDATE OF r
), waiting AS (
    SELECT i.id, i.message, i.position FROM inputs i, locked
    WHERE i.tenant = $1 AND i.run_id = $3 AND i.status = 'pending'
    FOR NO KEY UPDATE OF i
), pending AS (
    SELECT w.id, w.message, thread.next_seq + row_number() OVER (ORDER BY w.position) - 1 AS seq
    FROM waiting w, thread
), logged AS (
    INSERT INTO messages (tenant, thread_id, seq, message_id, role, visibility, content)
    SELECT $1, $2, p.seq, (p.message->>'id')::uuid, p.message->>'role',
        coalesce(p.message->>'visibility', 'all'), p.message->'content'
    FROM pending p
), consumed AS (
    UPDATE inputs i SET status = 'consumed', consumed_seq = p.seq FROM pending p
    WHERE i.tenant = $1 AND i.id = p.id
), counted AS (
    SELECT min(seq) AS from_seq, max(seq) AS to_seq,
        array_agg((message->>'id')::uuid ORDER BY seq) AS ids, array_agg(id ORDER BY seq) AS inputs
    FROM pending
), advanced AS (
    UPDATE threads t SET next_message_seq = counted.to_seq + 1, updated_at = now() FROM counted
    WHERE t.tenant = $1 AND t.id = $2 AND counted.to_seq IS NOT NULL
), claimed AS (
    UPDATE runs r SET status = 'running', attempt = r.attempt + 1, owner = $4,
        losses = r.losses + (locked.lost_owner IS NOT NULL)::int, dispatch_id = $6,
        -- What its owner executed after the last checkpoint, as far as it was heard of.
        lost_seconds = r.lost_seconds + coalesce((
            SELECT greatest(0, extract(epoch FROM w.heartbeat_at - r.updated_at))
            FROM workers w WHERE w.id = locked.lost_owner), 0),
        waiting_reason = NULL, waiting_message = NULL,
        -- A run's input is what it was started with: what comes later is in the log alone.
        input_from = coalesce(r.input_from, counted.from_seq),
        input_to = coalesce(r.input_to, counted.to_seq),
        input_ids = CASE WHEN r.input_from IS NULL THEN coalesce(counted.ids, '{}')
            ELSE r.input_ids END,
        unread_inputs = r.unread_inputs - coalesce(cardinality(counted.ids), 0),
        started_at = coalesce(r.started_at, now()), updated_at = now()
    FROM locked, counted
    WHERE r.tenant = $1 AND r.id = locked.id
    RETURNING r.*, locked.was, locked.lost_owner
), head AS (
    UPDATE event_heads h SET run_id = $3, attempt = claimed.attempt,
        next_seq = h.next_seq + coalesce(cardinality(counted.ids), 0)
    FROM claimed, counted WHERE h.tenant = $1 AND h.thread_id = $2
    RETURNING h.next_seq - coalesce(cardinality(counted.ids), 0) AS first_seq
), delivered AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, ts, event_type, body)
    SELECT $1, $2, head.first_seq + p.seq - thread.next_seq, $3, now(), $7, format(
        '{"input_id":"%s","message_id":"%s","message_seq":%s}', p.id, p.message->>'id', p.seq)
    FROM pending p, head, thread
)
SELECT claimed.*, coalesce(counted.to_seq + 1, thread.next_seq) AS next_seq,
    thread.thread_state::text, counted.inputs AS delivered, counted.ids AS delivered_ids,
    head.first_seq AS event_seq
FROM claimed CROSS JOIN counted CROSS JOIN thread LEFT JOIN head ON true
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The run is ours under a new attempt. `was` is its status before, `taken_over` tells whether
    another worker has died over it."""

    record: RunRecord
    was: RunStatus
    taken_over: bool
    next_message_seq: int
    thread_state: JsonObject
    told: Sequence[Entry] = ()
    """What the claim has said: of each input that it let into the log."""
    event_seq: int = 0
    """The number of the first of them."""


async def claim(
    pool: RawPool,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    owner: WorkerId,
    timeout: float,
    dispatch_id: str | None = None,
    *,
    unless_lost: Collection[int] = (),
) -> Claimed | None:
    """At most one worker gets the run, and never while its owner is alive: forget it on None.

    Nor does this one when so many workers as in `unless_lost` have been lost over it. The run's waiting
    inputs enter the log in the same instant, and it is said of each.
    """
    patience = timedelta(seconds=timeout)
    row = await pool.fetchrow(
        *(_CLAIM, tenant, thread_id, run_id, owner, patience, dispatch_id),
        InputDelivered.event_type,
        list(unless_lost),
    )
    if row is None:
        return None
    return Claimed(
        run_of(row),
        RunStatus(row["was"]),
        row["lost_owner"] is not None,
        row["next_seq"],
        parsed(row["thread_state"]) or {},
        _told_of(row),
        row["event_seq"] or 0,
    )


def _told_of(row: asyncpg.Record) -> list[Entry]:
    input_ids, message_ids = row["delivered"] or (), row["delivered_ids"] or ()
    first = row["next_seq"] - len(input_ids)
    return [
        entry(Said(InputDelivered(str(input_id), str(message_id), first + place), None))
        for place, (input_id, message_id) in enumerate(zip(input_ids, message_ids, strict=True))
    ]


# --- flush ----------------------------------------------------------------------------------------

_FLUSH = """
WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::int[], $5::int[])
        WITH ORDINALITY AS w(tenant, thread_id, run_id, attempt, n, i)
), locked AS (
    SELECT w.i, w.n, h.tenant, h.thread_id FROM want w
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
    SELECT w.tenant, w.thread_id, head.first_seq + e.place, w.run_id, e.step, $6, e.type, e.body
    FROM unnest($7::int[], $8::int[], $9::int[], $10::text[], $11::text[])
        AS e(i, place, step, type, body)
    JOIN want w ON w.i = e.i JOIN head ON head.i = e.i
)
SELECT i, first_seq FROM head
"""

_HEADS_HELD = """
SELECT w.i FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::int[])
    WITH ORDINALITY AS w(tenant, thread_id, run_id, attempt, i)
JOIN event_heads h ON h.tenant = w.tenant AND h.thread_id = w.thread_id
    AND h.run_id = w.run_id AND h.attempt = w.attempt
"""


@dataclass(frozen=True, slots=True)
class Flush:
    """What one run has said since its last flush, under the attempt that said it."""

    tenant: Tenant
    thread_id: ThreadId
    run_id: RunId
    attempt: int
    entries: Sequence[Entry]


async def flush(pool: RawPool, flushes: Sequence[Flush], at: datetime) -> dict[int, int]:
    """Number and log the events of many runs in one commit.

    Returns the first seq for each index that was written. One that is missing was locked by somebody
    or has lost its run: `still_owned` tells which.
    """
    events = _event_columns(flush.entries for flush in flushes)
    rows = await pool.fetch(
        _FLUSH,
        [flush.tenant for flush in flushes],
        [flush.thread_id for flush in flushes],
        [flush.run_id for flush in flushes],
        [flush.attempt for flush in flushes],
        [len(flush.entries) for flush in flushes],
        at,
        *events,
    )
    return {row["i"] - 1: row["first_seq"] for row in rows}


async def still_owned(pool: RawPool, flushes: Sequence[Flush]) -> set[int]:
    """Which of these runs are still ours to speak for, without waiting for any lock."""
    rows = await pool.fetch(
        _HEADS_HELD,
        [flush.tenant for flush in flushes],
        [flush.thread_id for flush in flushes],
        [flush.run_id for flush in flushes],
        [flush.attempt for flush in flushes],
    )
    return {row["i"] - 1 for row in rows}


_SEE_OUT = """
WITH thread AS (
    SELECT t.tenant, t.id FROM unnest($1::text[], $2::uuid[]) AS w(tenant, thread_id)
    JOIN threads t ON t.tenant = w.tenant AND t.id = w.thread_id
    ORDER BY t.tenant, t.id
    FOR NO KEY UPDATE OF t
)
SELECT FROM thread JOIN event_heads h ON h.tenant = thread.tenant AND h.thread_id = thread.id
ORDER BY h.tenant, h.thread_id
FOR NO KEY UPDATE OF h
"""

_LANDED = """
SELECT w.i, coalesce(min(e.seq), 0) AS first_seq
FROM unnest($1::text[], $2::uuid[], $3::uuid[])
    WITH ORDINALITY AS w(tenant, thread_id, run_id, i)
LEFT JOIN events e ON e.tenant = w.tenant AND e.thread_id = w.thread_id AND e.run_id = w.run_id
    AND e.ts = $4
LEFT JOIN runs r ON r.tenant = w.tenant AND r.id = w.run_id AND r.updated_at = $4
WHERE e.seq IS NOT NULL OR r.id IS NOT NULL
GROUP BY w.i
"""


async def landed(
    pool: RawPool, runs: Sequence[tuple[Tenant, ThreadId, RunId]], at: datetime
) -> dict[int, int]:
    """After a connection died over a commit: which of these runs it has written, by its instant.

    Returns the first event seq of each; 0 for a checkpoint without events. The server may still be
    at work for a client that is gone: it is seen out first, by its locks.
    """
    tenants = [tenant for tenant, _, _ in runs]
    thread_ids = [thread_id for _, thread_id, _ in runs]
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(_SEE_OUT, tenants, thread_ids)
        rows = await connection.fetch(
            _LANDED, tenants, thread_ids, [run_id for _, _, run_id in runs], at
        )
    return {row["i"] - 1: row["first_seq"] for row in rows}


# --- checkpoint -----------------------------------------------------------------------------------

_CHECKPOINT = """
WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::int[], $5::bigint[], $6::int[],
        $7::text[], $8::text[], $9::text[], $10::int[], $11::bigint[], $12::bigint[], $13::text[],
        $14::bigint[], $15::bigint[], $16::text[], $17::bool[], $18::int[])
        WITH ORDINALITY AS w(tenant, thread_id, run_id, attempt, next_seq, messages, status,
        termination, final_output, steps, input_tokens, output_tokens, state, output_from, output_to,
        output_ids, calls_settled, events, i)
), thread AS (
    SELECT w.i, t.state FROM want w JOIN threads t ON t.tenant = w.tenant AND t.id = w.thread_id
    WHERE t.next_message_seq = w.next_seq AND (w.status <> 'done' OR t.queue_length = 0)
    ORDER BY t.tenant, t.id
    FOR NO KEY UPDATE OF t
), run AS (
    SELECT w.i, r.owner, r.unread_inputs, r.open_tasks, coalesce(thread.state, '{}') AS thread_state
    FROM want w JOIN thread ON thread.i = w.i
    JOIN runs r ON r.tenant = w.tenant AND r.id = w.run_id
    WHERE r.attempt = w.attempt AND r.status = 'running'
        AND (w.status <> 'done'
            OR (r.unread_inputs = 0 AND r.open_tasks = 0 AND r.rolled_back_by IS NULL))
    ORDER BY r.tenant, r.id
    FOR NO KEY UPDATE OF r
), ours AS (
    SELECT w.*, run.thread_state FROM want w JOIN run ON run.i = w.i
    JOIN event_heads h ON h.tenant = w.tenant AND h.thread_id = w.thread_id
    WHERE h.run_id = w.run_id AND h.attempt = w.attempt
    ORDER BY h.tenant, h.thread_id
    FOR NO KEY UPDATE OF h
), thread_done AS (
    UPDATE threads t SET next_message_seq = t.next_message_seq + o.messages, updated_at = $19,
        open_run_id = CASE WHEN o.status = 'done' THEN NULL ELSE t.open_run_id END,
        state = coalesce(($49::text[])[o.i]::jsonb, t.state)
    FROM ours o WHERE t.tenant = o.tenant AND t.id = o.thread_id
), run_done AS (
    UPDATE runs r SET status = o.status, steps = o.steps,
        losses = CASE WHEN ($50::bool[])[o.i] THEN 0 ELSE r.losses END,
        owner = CASE WHEN o.status = 'done' THEN NULL ELSE r.owner END,
        termination = o.termination::jsonb, final_output = o.final_output,
        finished_at = CASE WHEN o.status = 'done' THEN $19 END,
        input_tokens = o.input_tokens, output_tokens = o.output_tokens, state = o.state::jsonb,
        output_from = o.output_from, output_to = o.output_to, output_ids = o.output_ids::uuid[],
        thread_state_before = CASE WHEN ($49::text[])[o.i] IS NULL THEN r.thread_state_before
            ELSE coalesce(r.thread_state_before, o.thread_state) END,
        updated_at = $19
    FROM ours o WHERE r.tenant = o.tenant AND r.id = o.run_id
), message AS (
    INSERT INTO messages (tenant, thread_id, seq, message_id, role, visibility, content, tool_calls,
        tool_call_id, produced_by_run, step_index, ran_with, created_at)
    SELECT o.tenant, o.thread_id, o.next_seq + m.place, m.id, m.role, m.visibility,
        m.content::jsonb, m.tool_calls::jsonb, m.tool_call_id, m.run_id, m.step_index,
        m.ran_with::jsonb, $19
    FROM unnest($20::int[], $21::int[], $22::uuid[], $23::text[], $24::text[], $25::text[],
        $26::text[], $27::text[], $28::uuid[], $29::int[], $30::text[])
        AS m(i, place, id, role, visibility, content, tool_calls, tool_call_id, run_id, step_index,
            ran_with)
    JOIN ours o ON o.i = m.i
), call AS (
    INSERT INTO tool_calls AS t (tenant, run_id, step_index, call_id, position, name, arguments,
        run_with, kept, status, effect, idempotency_key, attempt, worker, started_at, updated_at)
    SELECT o.tenant, o.run_id, c.step_index, c.call_id, c.position, c.name, c.arguments::jsonb,
        c.run_with::jsonb, c.kept::jsonb, c.status, c.effect, c.key, o.attempt,
        CASE WHEN c.status = 'running' THEN run.owner END,
        CASE WHEN c.status = 'running' THEN $19 END, $19
    FROM unnest($31::int[], $32::int[], $33::text[], $34::int[], $35::text[], $36::text[],
        $37::text[], $38::text[], $39::text[], $40::text[], $41::text[])
        AS c(i, step_index, call_id, position, name, arguments, run_with, kept, status, effect, key)
    JOIN ours o ON o.i = c.i JOIN run ON run.i = c.i
    ON CONFLICT (tenant, run_id, step_index, call_id) DO UPDATE
        SET status = excluded.status, run_with = excluded.run_with, kept = excluded.kept,
            attempt = excluded.attempt, worker = coalesce(excluded.worker, t.worker),
            started_at = coalesce(excluded.started_at, t.started_at), updated_at = excluded.updated_at
), closed AS (
    DELETE FROM tool_calls t USING ours o
    WHERE o.calls_settled AND t.tenant = o.tenant AND t.run_id = o.run_id
), head AS (
    UPDATE event_heads h SET next_seq = h.next_seq + o.events,
        run_id = CASE WHEN o.status = 'done' THEN NULL ELSE h.run_id END,
        attempt = CASE WHEN o.status = 'done' THEN NULL ELSE h.attempt END
    FROM ours o WHERE h.tenant = o.tenant AND h.thread_id = o.thread_id
    RETURNING o.i, h.next_seq - o.events AS first_seq
), event AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, step, ts, event_type, body)
    SELECT o.tenant, o.thread_id, head.first_seq + e.place, o.run_id, e.step, $19, e.type, e.body
    FROM unnest($42::int[], $43::int[], $44::int[], $45::text[], $46::text[])
        AS e(i, place, step, type, body)
    JOIN ours o ON o.i = e.i JOIN head ON head.i = e.i
), applied AS (
    -- Tickets are written under their run's lock only, so that coming after the head makes no cycle.
    UPDATE tickets t SET applied_at = $19
    FROM unnest($47::int[], $48::uuid[]) AS a(i, ticket) JOIN ours o ON o.i = a.i
    WHERE t.tenant = o.tenant AND t.id = a.ticket AND t.applied_at IS NULL
)
SELECT head.i, head.first_seq, run.unread_inputs, run.open_tasks FROM head JOIN run ON run.i = head.i
"""


@dataclass(frozen=True, slots=True)
class Written:
    """A checkpoint that was written, and what its run's row counted then."""

    first_seq: int
    unread_inputs: int = 0
    open_tasks: int = 0


async def checkpoint(
    pool: RawPool, writes: Sequence[tuple[Checkpoint, Sequence[Entry]]], at: datetime
) -> dict[int, Written]:
    """Commit the checkpoints of many runs that neither wait nor have anybody queued behind their end.

    Has an answer for each index that was written, whole. A missing one was not written at all: its run
    is lost, may not end yet, or needs the slower way of `checkpoints.py`.
    """
    checkpoints = [checkpoint for checkpoint, _ in writes]
    rows = await pool.fetch(
        _CHECKPOINT,
        *_run_columns(checkpoints, [len(entries) for _, entries in writes]),
        at,
        *_message_columns(checkpoints),
        *_call_columns(checkpoints),
        *_event_columns(entries for _, entries in writes),
        *_applied_columns(checkpoints),
        [None if c.thread_state is None else storable_json(c.thread_state) for c in checkpoints],
        [c.is_progress for c in checkpoints],
    )
    return {
        row["i"] - 1: Written(row["first_seq"], row["unread_inputs"], row["open_tasks"])
        for row in rows
    }


def _run_columns(checkpoints: Sequence[Checkpoint], events: Sequence[int]) -> list[list[Any]]:
    return _transposed(
        18,
        (
            (
                c.tenant,
                c.thread_id,
                c.run_id,
                c.attempt,
                c.next_seq,
                len(c.messages),
                status_of(c.state).value,
                storable_json(termination_to_json(c.state.termination))
                if isinstance(c.state, Done)
                else None,
                storable(c.state.final_output) if isinstance(c.state, Done) else None,
                c.steps,
                c.usage.input_tokens,
                c.usage.output_tokens,
                storable_json(c.run_state),
                c.output.range.from_seq if c.output.range else None,
                c.output.range.to_seq if c.output.range else None,
                "{" + ",".join(c.output.message_ids) + "}",
                c.calls_settled,
                count,
            )
            for c, count in zip(checkpoints, events, strict=True)
        ),
    )


def _message_columns(checkpoints: Sequence[Checkpoint]) -> list[list[Any]]:
    return _transposed(
        11,
        (
            (index, place, *message_columns(message).values())
            for index, checkpoint in enumerate(checkpoints, 1)
            for place, message in enumerate(checkpoint.messages)
        ),
    )


def _call_columns(checkpoints: Sequence[Checkpoint]) -> list[list[Any]]:
    return _transposed(
        11,
        (
            (
                index,
                call.step_index,
                call.call.id,
                call.position,
                call.call.name,
                storable_json(call.call.arguments),
                None if call.run_with is None else storable_json(call.run_with),
                None if call.kept is None else storable_json(kept_to_json(call.kept)),
                call.status.value,
                call.effect.value,
                call.idempotency_key,
            )
            for index, checkpoint in enumerate(checkpoints, 1)
            if not checkpoint.calls_settled
            for call in checkpoint.calls
        ),
    )


def _applied_columns(checkpoints: Sequence[Checkpoint]) -> list[list[Any]]:
    return _transposed(
        2,
        (
            (index, ticket)
            for index, checkpoint in enumerate(checkpoints, 1)
            for ticket in checkpoint.applied
        ),
    )


def _event_columns(groups: Iterable[Sequence[Entry]]) -> list[list[Any]]:
    return _transposed(
        5,
        (
            (index, place, entry.step, entry.event_type, entry.body)
            for index, entries in enumerate(groups, 1)
            for place, entry in enumerate(entries)
        ),
    )


def _transposed(width: int, rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as the columns that unnest wants, also when there are none."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(width)]
