"""Writes the checkpoints of many runs with one statement. Nearly all checkpoints are written here."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.checkpoints import Checkpoint
from app.domain.json_values import storable
from app.domain.runs.runs import Done, Waiting, status_of
from app.domain.runs.terminations import termination_to_json
from app.domain.tools.tool_calls import outcome_to_json
from app.storage.codec import message_columns, storable_json
from app.storage.events.columns import event_columns, transposed
from app.storage.events.event_log import EventEntry
from app.storage.postgres.database import RawPool
from app.storage.tickets.opening import opened_ctes, opened_json
from app.storage.usage import billed_cte, billed_json

_CHECKPOINT = """
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::int[], $5::bigint[], $6::int[],
        $7::text[], $8::text[], $9::text[], $10::int[], $11::bigint[], $12::bigint[], $13::text[],
        $14::bigint[], $15::bigint[], $16::text[], $17::bool[], $18::int[])
        WITH ORDINALITY AS w(tenant, thread_id, run_id, attempt, next_seq, messages, status,
        termination, final_output, steps, input_tokens, output_tokens, state, output_from, output_to,
        output_ids, all_calls_done, events, i)
), thread AS (
    SELECT w.i, t.state FROM wanted w JOIN threads t ON t.tenant = w.tenant AND t.id = w.thread_id
    WHERE t.next_message_seq = w.next_seq AND (w.status <> 'done' OR t.queue_length = 0)
    ORDER BY t.tenant, t.id
    FOR NO KEY UPDATE OF t
), run AS (
    SELECT w.i, r.owner, r.root_run_id, r.started_by, r.unread_inputs, r.open_tasks, r.pause_requested_at,
        coalesce(thread.state, '{}') AS thread_state
    FROM wanted w JOIN thread ON thread.i = w.i
    JOIN runs r ON r.tenant = w.tenant AND r.id = w.run_id
    WHERE r.attempt = w.attempt AND r.status = 'running'
        AND (w.status <> 'done'
            OR (r.unread_inputs = 0 AND r.open_tasks = 0 AND r.rolled_back_by IS NULL))
        /* may suspend */
    ORDER BY r.tenant, r.id
    FOR NO KEY UPDATE OF r
), owned AS (
    SELECT w.*, run.root_run_id, run.started_by, run.thread_state FROM wanted w JOIN run ON run.i = w.i
    JOIN event_heads h ON h.tenant = w.tenant AND h.thread_id = w.thread_id
    WHERE h.run_id = w.run_id AND h.attempt = w.attempt
    ORDER BY h.tenant, h.thread_id
    FOR NO KEY UPDATE OF h
), updated_thread AS (
    UPDATE threads t SET next_message_seq = t.next_message_seq + o.messages, updated_at = $19,
        open_run_id = CASE WHEN o.status = 'done' THEN NULL ELSE t.open_run_id END,
        state = coalesce(($49::text[])[o.i]::jsonb, t.state)
    FROM owned o WHERE t.tenant = o.tenant AND t.id = o.thread_id
), updated_run AS (
    UPDATE runs r SET status = o.status, steps = o.steps,
        losses = CASE WHEN ($50::bool[])[o.i] THEN 0 ELSE r.losses END,
        owner = CASE WHEN o.status = 'running' THEN r.owner END,
        waiting_reason = ($51::text[])[o.i], waiting_message = ($52::text[])[o.i],
        termination = o.termination::jsonb, final_output = o.final_output,
        structured_output = ($53::text[])[o.i]::jsonb,
        finished_at = CASE WHEN o.status = 'done' THEN $19 END,
        input_tokens = o.input_tokens, output_tokens = o.output_tokens, state = o.state::jsonb,
        output_from = o.output_from, output_to = o.output_to, output_ids = o.output_ids::uuid[],
        thread_state_before = CASE WHEN ($49::text[])[o.i] IS NULL THEN r.thread_state_before
            ELSE coalesce(r.thread_state_before, o.thread_state) END,
        updated_at = $19
    FROM owned o WHERE r.tenant = o.tenant AND r.id = o.run_id
), message AS (
    INSERT INTO messages (tenant, thread_id, seq, message_id, role, visibility, content, tool_calls,
        tool_call_id, produced_by_run, step_index, edited_arguments, created_at)
    SELECT o.tenant, o.thread_id, o.next_seq + m.position, m.id, m.role, m.visibility,
        m.content::jsonb, m.tool_calls::jsonb, m.tool_call_id, m.run_id, m.step_index,
        m.edited_arguments::jsonb, $19
    FROM unnest($20::int[], $21::int[], $22::uuid[], $23::text[], $24::text[], $25::text[],
        $26::text[], $27::text[], $28::uuid[], $29::int[], $30::text[])
        AS m(i, position, id, role, visibility, content, tool_calls, tool_call_id, run_id, step_index,
            edited_arguments)
    JOIN owned o ON o.i = m.i
), call AS (
    INSERT INTO tool_calls AS t (tenant, run_id, step_index, call_id, position, name, arguments,
        edited_arguments, unreported_outcome, status, effect, idempotency_key, tool_digest,
        attempt, worker, started_at, updated_at)
    SELECT o.tenant, o.run_id, c.step_index, c.call_id, c.position, c.name, c.arguments::jsonb,
        c.edited_arguments::jsonb, c.unreported_outcome::jsonb, c.status, c.effect, c.key, c.digest,
        o.attempt,
        CASE WHEN c.status = 'running' THEN run.owner END,
        CASE WHEN c.status = 'running' THEN $19 END, $19
    FROM unnest($31::int[], $32::int[], $33::text[], $34::int[], $35::text[], $36::text[],
        $37::text[], $38::text[], $39::text[], $40::text[], $41::text[], $54::text[])
        AS c(i, step_index, call_id, position, name, arguments, edited_arguments, unreported_outcome, status, effect, key,
            digest)
    JOIN owned o ON o.i = c.i JOIN run ON run.i = c.i
    ON CONFLICT (tenant, run_id, step_index, call_id) DO UPDATE
        SET status = excluded.status, edited_arguments = excluded.edited_arguments, unreported_outcome = excluded.unreported_outcome,
            attempt = excluded.attempt, worker = coalesce(excluded.worker, t.worker),
            started_at = coalesce(excluded.started_at, t.started_at), updated_at = excluded.updated_at
), deleted_calls AS (
    DELETE FROM tool_calls t USING owned o
    WHERE o.all_calls_done AND t.tenant = o.tenant AND t.run_id = o.run_id
), head AS (
    UPDATE event_heads h SET next_seq = h.next_seq + o.events,
        run_id = CASE WHEN o.status = 'running' THEN h.run_id END,
        attempt = CASE WHEN o.status = 'running' THEN h.attempt END
    FROM owned o WHERE h.tenant = o.tenant AND h.thread_id = o.thread_id
    RETURNING o.i, h.next_seq - o.events AS first_seq
), event AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, step, ts, event_type, body)
    SELECT o.tenant, o.thread_id, head.first_seq + e.position, o.run_id, e.step, $19, e.type, e.body
    FROM unnest($42::int[], $43::int[], $44::int[], $45::text[], $46::text[])
        AS e(i, position, step, type, body)
    JOIN owned o ON o.i = e.i JOIN head ON head.i = e.i
), applied AS (
    -- After the event head is no breach of the lock order: tickets are only written under their run's lock.
    UPDATE tickets t SET applied_at = $19
    FROM unnest($47::int[], $48::uuid[]) AS a(i, ticket) JOIN owned o ON o.i = a.i
    WHERE t.tenant = o.tenant AND t.id = a.ticket AND t.applied_at IS NULL
)/* opened *//* billed */
SELECT head.i, head.first_seq, run.unread_inputs, run.open_tasks,
    run.pause_requested_at IS NOT NULL AS is_paused
FROM head JOIN run ON run.i = head.i
"""

# The tickets are read in the snapshot of the statement's begin, also if it then waits for the run's lock. That is
# enough: only the run itself opens and applies tickets, so a ticket that is decided meanwhile was unsettled before.
_MAY_SUSPEND = """AND (w.status <> 'waiting'
            OR (r.open_tasks = 0 AND r.cancel_requested_at IS NULL AND r.pause_requested_at IS NULL
                AND NOT EXISTS (
                    SELECT FROM tickets k WHERE k.tenant = r.tenant AND k.run_id = r.id
                        AND (k.status = 'open'
                            OR (k.status IN ('decided', 'expired') AND k.applied_at IS NULL))
                        AND NOT EXISTS (SELECT FROM unnest($47::int[], $48::uuid[]) AS a(i, ticket)
                            WHERE a.i = w.i AND a.ticket = k.id))))"""
_WITH_SUSPENSIONS = _CHECKPOINT.replace("/* may suspend */", _MAY_SUSPEND).replace(
    "/* opened */", ", " + opened_ctes("$55", "JOIN owned o ON o.i = k.i")
)


def _with_billed(statement: str, parameter: str) -> str:
    return statement.replace("/* billed */", ", " + billed_cte(parameter, "owned o"))


_STATEMENTS = {
    (False, False): _CHECKPOINT,
    (False, True): _with_billed(_CHECKPOINT, "$55"),
    (True, False): _WITH_SUSPENSIONS,
    (True, True): _with_billed(_WITH_SUSPENSIONS, "$56"),
}
"""The statements by whether they open tickets, and whether they write rows of the usage ledger."""


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A checkpoint that was written, with the counters of its run's row."""

    first_seq: int
    unread_inputs: int = 0
    open_tasks: int = 0
    is_paused: bool = False
    """The run's row has a pause request."""


async def checkpoint(
    pool: RawPool, writes: Sequence[tuple[Checkpoint, Sequence[EventEntry]]], at: datetime
) -> dict[int, CheckpointWritten]:
    """Commit checkpoints of runs that execute, that wait for people, or whose end admits no queued run.

    Returns a result for each index that was written. Of a missing index nothing was written: another
    worker owns the run, it may not end yet, or `checkpoints/single` has to write it.
    """
    checkpoints = [checkpoint for checkpoint, _ in writes]
    suspensions = [c.state if isinstance(c.state, Waiting) else None for c in checkpoints]
    opened: list[str] = []
    if any(suspensions):
        numbered = enumerate(checkpoints, 1)
        opened = [opened_json((i, c.tenant, ticket) for i, c in numbered for ticket in c.opened)]
    billed: list[str] = []
    if any(c.billed for c in checkpoints):
        billed = [billed_json((i, each) for i, c in enumerate(checkpoints, 1) for each in c.billed)]
    *calls, digests = _call_columns(checkpoints)
    rows = await pool.fetch(
        _STATEMENTS[bool(opened), bool(billed)],
        *_run_columns(checkpoints, [len(entries) for _, entries in writes]),
        at,
        *_message_columns(checkpoints),
        *calls,
        *event_columns(entries for _, entries in writes),
        *_applied_columns(checkpoints),
        [None if c.thread_state is None else storable_json(c.thread_state) for c in checkpoints],
        [c.is_progress for c in checkpoints],
        [None if waiting is None else waiting.reason.value for waiting in suspensions],
        [None if waiting is None else storable(waiting.message) for waiting in suspensions],
        [_structured_output(c) for c in checkpoints],
        digests,
        *opened,
        *billed,
    )
    return {
        row["i"] - 1: CheckpointWritten(
            row["first_seq"], row["unread_inputs"], row["open_tasks"], row["is_paused"]
        )
        for row in rows
    }


def _structured_output(checkpoint: Checkpoint) -> str | None:
    state = checkpoint.state
    if not isinstance(state, Done) or state.structured_output is None:
        return None
    return storable_json(state.structured_output)


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
            (index, position, *message_columns(message).values())
            for index, checkpoint in enumerate(checkpoints, 1)
            for position, message in enumerate(checkpoint.messages)
        ),
    )


def _call_columns(checkpoints: Sequence[Checkpoint]) -> list[list[Any]]:
    return transposed(
        12,
        (
            (
                index,
                call.step_index,
                call.call.id,
                call.position,
                call.call.name,
                storable_json(call.call.arguments),
                None if call.edited_arguments is None else storable_json(call.edited_arguments),
                None
                if call.unreported_outcome is None
                else storable_json(outcome_to_json(call.unreported_outcome)),
                call.status.value,
                call.effect.value,
                call.idempotency_key,
                call.tool_digest,
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
