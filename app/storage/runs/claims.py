"""How a run starts to execute: `admit` creates a run that executes at once, `claim` takes an existing one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

import asyncpg

from app.domain.checkpoints import PendingEvent
from app.domain.events.input_events import InputDelivered
from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.domain.json_values import JsonObject
from app.domain.runs.claimed_run import ClaimedRun
from app.domain.runs.runs import NewRun, RunRecord, RunStatus
from app.storage.codec import message_columns, run_of, storable_json
from app.storage.events.event_log import EventEntry, entry
from app.storage.postgres.connection import Driver
from app.storage.postgres.database import Connection, RawPool
from app.storage.runs.runs import RunKey

# --- admit ----------------------------------------------------------------------------------------

_ADMIT = """
WITH thread AS (
    INSERT INTO threads AS t (tenant, id, key, next_message_seq, open_run_id, latest_run_id)
    VALUES ($1, $2, $26, 1 + $10, $3, $3)
    ON CONFLICT (tenant, id) DO UPDATE
        SET next_message_seq = t.next_message_seq + $10, open_run_id = $3, latest_run_id = $3,
            key = coalesce(t.key, excluded.key), updated_at = now()
        WHERE t.open_run_id IS NULL AND t.queue_length = 0
    RETURNING t.next_message_seq - $10 AS first_seq, t.state, t.key
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
        events_from, input_from, input_to, input_ids, thread_key)
    SELECT $1, $3, $2, $4, $5, 'running', true, $18, $19, $20, $21, $22, $23, $6::text::jsonb, $7,
        $8::text::jsonb, $9, $24, 1, $25, $15, $15, $15,
        head.seq, thread.first_seq, thread.first_seq + $10 - 1, $11::uuid[], thread.key
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
SELECT thread.first_seq, thread.state, thread.key, head.seq FROM thread, head
"""


@dataclass(frozen=True, slots=True)
class AdmittedRow:
    """A run that was created and is owned by this process. Its messages start at `first_message_seq`."""

    first_message_seq: int
    event_seq: int
    thread_state: JsonObject = field(default_factory=dict)
    thread_key: str | None = None


async def admit(
    pool: RawPool, run: NewRun, owner: WorkerId, events: Sequence[EventEntry], at: datetime
) -> AdmittedRow | None:
    """Create a run that this process owns under attempt 1, and append its first events.

    None, and nothing written, if the thread is occupied or has queued runs, or the run's id exists.
    """
    try:
        row = await pool.fetchrow(_ADMIT, *_admit_arguments(run, owner, events, at))
    except asyncpg.UniqueViolationError:
        return None
    if row is None:
        return None
    return AdmittedRow(row["first_seq"], row["seq"], row["state"] or {}, row["key"])


def _admit_arguments(
    run: NewRun, owner: WorkerId, events: Sequence[EventEntry], at: datetime
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
        [entry.event_type for entry in events],
        [entry.body for entry in events],
        lineage.root_run_id,
        lineage.parent_run_id,
        lineage.parent_thread_id,
        lineage.parent_call_id,
        lineage.depth,
        lineage.retry_of,
        run.traceparent,
        owner,
        run.thread_key,
    )


# --- claim ----------------------------------------------------------------------------------------

_CLAIM = """
WITH thread AS (
    SELECT t.next_message_seq AS next_seq, t.state AS thread_state FROM threads t
    WHERE t.tenant = $1 AND t.id = $2 FOR NO KEY UPDATE
), locked AS (
    SELECT r.id, r.status AS previous_status, r.owner AS lost_owner,
        -- While an interrupted answer is incomplete, pending inputs stay out of the log.
        coalesce(jsonb_typeof(r.state #> '{extensions,__runtime.partial_answer}') = 'object', false)
            AS has_partial_answer
    FROM runs r, thread
    WHERE r.tenant = $1 AND r.id = $3 AND r.admitted AND r.status <> 'done'
        AND (r.owner IS NULL OR NOT EXISTS (
            SELECT FROM workers w WHERE w.id = r.owner AND w.heartbeat_at > now() - $5::interval))
        -- A run that is to be cancelled executes no code that could take its worker along.
        AND (r.cancel_requested_at IS NOT NULL
            OR NOT r.losses + (r.owner IS NOT NULL)::int = ANY($8::int[]))
        -- A paused run is claimed only to be suspended after the loss of its owner, or to be cancelled.
        AND (r.pause_requested_at IS NULL OR r.status = 'running'
            OR r.cancel_requested_at IS NOT NULL)
        -- A run that waits for a rate limit isn't claimed before that ends, unless it is to be cancelled.
        AND (r.waiting_until IS NULL OR r.waiting_until <= now() OR r.cancel_requested_at IS NOT NULL)
    FOR NO KEY UPDATE OF r
), unread AS (
    SELECT i.id, i.message, i.position FROM inputs i, locked
    WHERE i.tenant = $1 AND i.run_id = $3 AND i.status = 'pending' AND NOT locked.has_partial_answer
    FOR NO KEY UPDATE OF i
), pending AS (
    SELECT u.id, u.message, thread.next_seq + row_number() OVER (ORDER BY u.position) - 1 AS seq
    FROM unread u, thread
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
        -- The time between the last checkpoint and the last heartbeat of the lost owner.
        lost_seconds = r.lost_seconds + coalesce((
            SELECT greatest(0, extract(epoch FROM w.heartbeat_at - r.updated_at))
            FROM workers w WHERE w.id = locked.lost_owner), 0),
        waiting_reason = NULL, waiting_message = NULL, waiting_until = NULL,
        -- The input range is what the run was started with. Later messages are only in the log.
        input_from = coalesce(r.input_from, counted.from_seq),
        input_to = coalesce(r.input_to, counted.to_seq),
        input_ids = CASE WHEN r.input_from IS NULL THEN coalesce(counted.ids, '{}')
            ELSE r.input_ids END,
        unread_inputs = r.unread_inputs - coalesce(cardinality(counted.ids), 0),
        started_at = coalesce(r.started_at, now()), updated_at = now()
    FROM locked, counted
    WHERE r.tenant = $1 AND r.id = locked.id
    RETURNING r.*, locked.previous_status, locked.lost_owner
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
    thread.thread_state, counted.inputs AS delivered, counted.ids AS delivered_ids,
    head.first_seq AS event_seq
FROM claimed CROSS JOIN counted CROSS JOIN thread LEFT JOIN head ON true
"""


@dataclass(frozen=True, slots=True)
class ClaimedRow:
    """A run that this process owns under a new attempt. `taken_over`: its last owner died."""

    record: RunRecord
    previous_state: RunStatus
    taken_over: bool
    next_message_seq: int
    thread_state: JsonObject
    events: Sequence[EventEntry] = ()
    """One `input_delivered` event for each input that the claim appended to the log."""
    event_seq: int = 0
    """The seq of the first of these events."""


class ClaimHere(Protocol):
    """Claims a run in a command's transaction, for a slot that this process has reserved.

    The caller has locked the run and its thread. None if the run can't be claimed. The caller executes it after
    the commit.
    """

    async def __call__(self, connection: Connection, key: RunKey) -> ClaimedRun | None: ...


async def claim(
    pool: "RawPool | Driver",
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    owner: WorkerId,
    timeout: float,
    dispatch_id: str | None = None,
    *,
    unless_lost: Collection[int] = (),
) -> ClaimedRow | None:
    """Claim a run whose owner is dead or missing. At most one worker gets it.

    In a transaction of the caller if `pool` is its connection. Returns None if the run isn't free, or if its losses would be one of `unless_lost` and it has no cancel
    request. The same statement appends the run's pending inputs to the log, with an event for each.
    """
    heartbeat_timeout = timedelta(seconds=timeout)
    row = await pool.fetchrow(
        *(_CLAIM, tenant, thread_id, run_id, owner, heartbeat_timeout, dispatch_id),
        InputDelivered.event_type,
        list(unless_lost),
    )
    if row is None:
        return None
    return ClaimedRow(
        run_of(row),
        RunStatus(row["previous_status"]),
        row["lost_owner"] is not None,
        row["next_seq"],
        row["thread_state"] or {},
        _delivery_events(row),
        row["event_seq"] or 0,
    )


def _delivery_events(row: asyncpg.Record) -> list[EventEntry]:
    input_ids, message_ids = row["delivered"] or (), row["delivered_ids"] or ()
    first = row["next_seq"] - len(input_ids)
    return [
        entry(PendingEvent(InputDelivered(str(input_id), str(message_id), first + index), None))
        for index, (input_id, message_id) in enumerate(zip(input_ids, message_ids, strict=True))
    ]
