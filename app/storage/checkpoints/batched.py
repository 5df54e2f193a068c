"""The checkpoints of many runs written by one statement: nearly all that there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.checkpoints import Checkpoint
from app.domain.json_values import storable
from app.domain.runs.runs import Done, status_of
from app.domain.runs.terminations import termination_to_json
from app.domain.tools.tool_calls import outcome_to_json
from app.storage.codec import message_columns, storable_json
from app.storage.events.columns import event_columns, transposed
from app.storage.events.event_log import EventEntry
from app.storage.postgres.database import RawPool

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
    SELECT w.i, r.owner, r.unread_inputs, r.open_tasks, r.pause_requested_at, coalesce(thread.state, '{}') AS thread_state
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
SELECT head.i, head.first_seq, run.unread_inputs, run.open_tasks,
    run.pause_requested_at IS NOT NULL AS is_paused
FROM head JOIN run ON run.i = head.i
"""


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A checkpoint that was written, and what its run's row counted then."""

    first_seq: int
    unread_inputs: int = 0
    open_tasks: int = 0
    is_paused: bool = False
    """The run's row has a pause request."""


async def checkpoint(
    pool: RawPool, writes: Sequence[tuple[Checkpoint, Sequence[EventEntry]]], at: datetime
) -> dict[int, CheckpointWritten]:
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
        *event_columns(entries for _, entries in writes),
        *_applied_columns(checkpoints),
        [None if c.thread_state is None else storable_json(c.thread_state) for c in checkpoints],
        [c.is_progress for c in checkpoints],
    )
    return {
        row["i"] - 1: CheckpointWritten(
            row["first_seq"], row["unread_inputs"], row["open_tasks"], row["is_paused"]
        )
        for row in rows
    }


def _run_columns(checkpoints: Sequence[Checkpoint], events: Sequence[int]) -> list[list[Any]]:
    return transposed(
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
    return transposed(
        11,
        (
            (index, place, *message_columns(message).values())
            for index, checkpoint in enumerate(checkpoints, 1)
            for place, message in enumerate(checkpoint.messages)
        ),
    )


def _call_columns(checkpoints: Sequence[Checkpoint]) -> list[list[Any]]:
    return transposed(
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
                None
                if call.unreported_outcome is None
                else storable_json(outcome_to_json(call.unreported_outcome)),
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
    return transposed(
        2,
        (
            (index, ticket)
            for index, checkpoint in enumerate(checkpoints, 1)
            for ticket in checkpoint.applied
        ),
    )
