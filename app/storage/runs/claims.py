"""How a run starts to execute: `admit` creates a run that executes at once, `claim` takes an existing one."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import asyncpg
from msgspec import Struct

from app.domain.checkpoints import PendingEvent
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.events.input_events import InputDelivered
from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.domain.json_values import JsonObject
from app.domain.runs.runs import NewRun, RunRecord, RunStatus
from app.storage.codec import insert_messages, message_values, run_of, storable_json
from app.storage.events.columns import EVENTS, event_values
from app.storage.events.event_log import EventEntry, entry
from app.storage.postgres.connection import Driver
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql
from app.storage.runs.runs import RunKey


def _argument(name: str, type_: str) -> str:
    """JSON is sent as text: its codec would decode it again."""
    return f":{name}::text::jsonb" if type_ == "jsonb" else f":{name}::{type_}"


# --- admit ----------------------------------------------------------------------------------------

_NEW = {
    "tenant": "text",
    "id": "uuid",
    "thread_id": "uuid",
    "agent_id": "text",
    "agent_version": "text",
    "root_run_id": "uuid",
    "parent_run_id": "uuid",
    "parent_thread_id": "uuid",
    "parent_call_id": "text",
    "depth": "int",
    "retry_of": "uuid",
    "request": "jsonb",
    "request_digest": "text",
    "metadata": "jsonb",
    "started_by": "text",
    "traceparent": "text",
    "owner": "uuid",
    "input_ids": "uuid[]",
}
"""The columns of `runs` that the start gives."""

_ADMIT = NamedSql(f"""
WITH thread AS (
    INSERT INTO threads AS t (tenant, id, key, next_message_seq, open_run_id, latest_run_id)
    VALUES (:tenant, :thread_id, :thread_key, 1 + :messages, :id, :id)
    ON CONFLICT (tenant, id) DO UPDATE
        SET next_message_seq = t.next_message_seq + :messages, open_run_id = :id, latest_run_id = :id,
            key = coalesce(t.key, excluded.key), updated_at = now()
        WHERE t.open_run_id IS NULL AND t.queue_length = 0
    RETURNING t.next_message_seq - :messages AS first_seq, t.state, t.key
), head AS (
    INSERT INTO event_heads AS h (tenant, thread_id, next_seq, run_id, attempt)
    SELECT :tenant, :thread_id, 1 + :events::int, :id, 1 FROM thread
    ON CONFLICT (tenant, thread_id) DO UPDATE
        SET next_seq = h.next_seq + :events::int, run_id = excluded.run_id, attempt = excluded.attempt
    RETURNING h.next_seq - :events::int AS seq
), run AS (
    INSERT INTO runs ({", ".join(_NEW)}, status, admitted, attempt, created_at, started_at, updated_at,
        events_from, input_from, input_to, thread_key)
    SELECT {", ".join(_argument(name, type_) for name, type_ in _NEW.items())},
        'running', true, 1, :at, :at, :at,
        head.seq, thread.first_seq, thread.first_seq + :messages - 1, thread.key
    FROM thread, head
), message AS (
    {insert_messages(":tenant", ":thread_id", "thread.first_seq", ":at", "CROSS JOIN thread")}
), event AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, step, ts, event_type, body)
    SELECT :tenant, :thread_id, head.seq + e.position, :id, e.step, :at, e.event_type, e.body
    FROM head, {EVENTS.sql}
)
SELECT thread.first_seq, thread.state, thread.key, head.seq FROM thread, head
""")


class AdmittedRow(Struct, frozen=True):
    """A run that was created and is owned by this process. Its messages start at `first_message_seq`."""

    first_message_seq: int
    event_seq: int
    thread_state: JsonObject = {}
    thread_key: str | None = None


async def admit(
    pool: RawPool, run: NewRun, owner: WorkerId, events: Sequence[EventEntry], at: datetime
) -> AdmittedRow | None:
    """Create a run that this process owns under attempt 1, and append its first events.

    None, and nothing written, if the thread is occupied or has queued runs, or the run's id exists.
    """
    try:
        row = await pool.fetchrow(*_ADMIT(**_admit_values(run, owner, events, at)))
    except asyncpg.UniqueViolationError:
        return None
    if row is None:
        return None
    return AdmittedRow(row["first_seq"], row["seq"], row["state"] or {}, row["key"])


def _admit_values(
    run: NewRun, owner: WorkerId, events: Sequence[EventEntry], at: datetime
) -> dict[str, Any]:
    lineage = run.lineage
    return {
        "tenant": run.tenant,
        "id": run.id,
        "thread_id": run.thread_id,
        "agent_id": run.agent_id,
        "agent_version": run.agent_version,
        "root_run_id": lineage.root_run_id,
        "parent_run_id": lineage.parent_run_id,
        "parent_thread_id": lineage.parent_thread_id,
        "parent_call_id": lineage.parent_call_id,
        "depth": lineage.depth,
        "retry_of": lineage.retry_of,
        "request": storable_json(run.request),
        "request_digest": run.request_digest,
        "metadata": storable_json(run.metadata),
        "started_by": run.started_by,
        "traceparent": run.traceparent,
        "owner": owner,
        "input_ids": [message.id for message in run.messages],
        "thread_key": run.thread_key,
        "messages": len(run.messages),
        "events": len(events),
        "at": at,
        **message_values([run.messages]),
        **event_values([events]),
    }


# --- claim ----------------------------------------------------------------------------------------

_CLAIM = NamedSql("""
WITH thread AS (
    SELECT t.next_message_seq AS next_seq, t.state AS thread_state FROM threads t
    WHERE t.tenant = :tenant AND t.id = :thread_id FOR NO KEY UPDATE
), locked AS (
    SELECT r.id, r.status AS previous_status, r.owner AS lost_owner,
        -- While an interrupted answer is incomplete, pending inputs stay out of the log.
        coalesce(jsonb_typeof(r.state #> '{extensions,__runtime.partial_answer}') = 'object', false)
            AS has_partial_answer
    FROM runs r, thread
    WHERE r.tenant = :tenant AND r.id = :run_id AND r.admitted AND r.status <> 'done'
        -- A delivery from before the run's last claim is stale: that claim has read what it was for.
        AND (r.status <> 'waiting' OR r.attempt = coalesce(:attempt::int, r.attempt)
            OR r.cancel_requested_at IS NOT NULL)
        AND (r.owner IS NULL OR NOT EXISTS (
            SELECT FROM workers w WHERE w.id = r.owner AND w.heartbeat_at > now() - :timeout::interval))
        -- A run that is to be cancelled executes no code that could take its worker along.
        AND (r.cancel_requested_at IS NOT NULL
            OR NOT r.losses + (r.owner IS NOT NULL)::int = ANY(:unless_lost::int[]))
        -- A paused run is claimed only to be suspended after the loss of its owner, or to be cancelled.
        AND (r.pause_requested_at IS NULL OR r.status = 'running'
            OR r.cancel_requested_at IS NOT NULL)
        -- A run that waits for a rate limit isn't claimed before that ends, unless it is to be cancelled.
        AND (r.waiting_until IS NULL OR r.waiting_until <= now() OR r.cancel_requested_at IS NOT NULL)
    FOR NO KEY UPDATE OF r
), unread AS (
    SELECT i.id, i.message, i.position FROM inputs i, locked
    WHERE i.tenant = :tenant AND i.run_id = :run_id AND i.status = 'pending' AND NOT locked.has_partial_answer
    FOR NO KEY UPDATE OF i
), pending AS (
    SELECT u.id, u.message, thread.next_seq + row_number() OVER (ORDER BY u.position) - 1 AS seq
    FROM unread u, thread
), logged AS (
    INSERT INTO messages (tenant, thread_id, seq, message_id, role, visibility, content)
    SELECT :tenant, :thread_id, p.seq, (p.message->>'id')::uuid, p.message->>'role',
        coalesce(p.message->>'visibility', 'all'), p.message->'content'
    FROM pending p
), consumed AS (
    UPDATE inputs i SET status = 'consumed', consumed_seq = p.seq FROM pending p
    WHERE i.tenant = :tenant AND i.id = p.id
), counted AS (
    SELECT min(seq) AS from_seq, max(seq) AS to_seq,
        array_agg((message->>'id')::uuid ORDER BY seq) AS ids, array_agg(id ORDER BY seq) AS inputs
    FROM pending
), advanced AS (
    UPDATE threads t SET next_message_seq = counted.to_seq + 1, updated_at = now() FROM counted
    WHERE t.tenant = :tenant AND t.id = :thread_id AND counted.to_seq IS NOT NULL
), claimed AS (
    UPDATE runs r SET status = 'running', attempt = r.attempt + 1, owner = :owner,
        losses = r.losses + (locked.lost_owner IS NOT NULL)::int, dispatch_id = :dispatch_id,
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
    WHERE r.tenant = :tenant AND r.id = locked.id
    RETURNING r.*, locked.previous_status, locked.lost_owner
), head AS (
    UPDATE event_heads h SET run_id = :run_id, attempt = claimed.attempt,
        next_seq = h.next_seq + coalesce(cardinality(counted.ids), 0)
    FROM claimed, counted WHERE h.tenant = :tenant AND h.thread_id = :thread_id
    RETURNING h.next_seq - coalesce(cardinality(counted.ids), 0) AS first_seq
), delivered AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, ts, event_type, body)
    SELECT :tenant, :thread_id, head.first_seq + p.seq - thread.next_seq, :run_id, now(), :event_type, format(
        '{"input_id":"%s","message_id":"%s","message_seq":%s}', p.id, p.message->>'id', p.seq)
    FROM pending p, head, thread
)
SELECT claimed.*, coalesce(counted.to_seq + 1, thread.next_seq) AS next_seq,
    thread.thread_state, counted.inputs AS delivered, counted.ids AS delivered_ids,
    head.first_seq AS event_seq
FROM claimed CROSS JOIN counted CROSS JOIN thread LEFT JOIN head ON true
""")


class ClaimedRow(Struct, frozen=True):
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
    attempt: int | None = None,
    unless_lost: Collection[int] = (),
) -> ClaimedRow | None:
    """Claim a run whose owner is dead or missing. At most one worker gets it.

    In a transaction of the caller if `pool` is its connection. Returns None if the run isn't free, if it waits
    and was claimed since `attempt`, or if its losses would be one of `unless_lost`. A run with a cancel request is
    claimed all the same. The same statement appends the run's pending inputs to the log, with an event for each.
    """
    row = await pool.fetchrow(
        *_CLAIM(
            tenant=tenant,
            thread_id=thread_id,
            run_id=run_id,
            owner=owner,
            timeout=timedelta(seconds=timeout),
            dispatch_id=dispatch_id,
            attempt=attempt,
            event_type=InputDelivered.event_type,
            unless_lost=list(unless_lost),
        )
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
