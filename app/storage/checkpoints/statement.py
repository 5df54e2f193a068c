"""The statement that writes checkpoints: of many runs at once, or of one in a transaction that locks its rows.

Columns of `runs` that a checkpoint writes are named once, in `_WRITTEN`, and get their values in `_run_row`.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Self

from msgspec import Struct

from app.domain.checkpoints import Checkpoint
from app.domain.json_values import storable
from app.domain.runs.runs import Done, Waiting, status_of
from app.domain.runs.terminations import termination_to_json
from app.domain.tools.tool_calls import outcome_to_json
from app.storage.codec import insert_messages, message_values, storable_json
from app.storage.events.columns import EVENTS, event_values
from app.storage.events.event_log import EventEntry
from app.storage.postgres.named_parameters import LONG_TEXT, NamedSql, Rows
from app.storage.tickets.opening import opened_ctes, opened_json
from app.storage.tickets.tickets import IS_UNSETTLED
from app.storage.usage.ledger import billed_cte, billed_json

_WRITTEN = {
    "status": "text",
    "steps": "int",
    "input_tokens": "bigint",
    "output_tokens": "bigint",
    "state": "jsonb",
    "output_from": "bigint",
    "output_to": "bigint",
    "output_ids": "uuid[]",
    "waiting_reason": "text",
    "waiting_message": "text",
    "termination": "jsonb",
    "final_output": LONG_TEXT,
    "structured_output": "jsonb",
}
_RUNS = Rows(
    "w",
    {
        "tenant": "text",
        "thread_id": "uuid",
        "run_id": "uuid",
        "attempt": "int",
        "next_seq": "bigint",
        "messages": "int",
        "events": "int",
        "is_progress": "bool",
        "all_calls_done": "bool",
        "thread_state": "jsonb",
        **_WRITTEN,
    },
    numbered="i",
)
_CALL = {
    "step_index": "int",
    "call_id": "text",
    "position": "int",
    "name": "text",
    "arguments": "jsonb",
    "edited_arguments": "jsonb",
    "unreported_outcome": "jsonb",
    "status": "text",
    "effect": "text",
    "idempotency_key": "text",
    "tool_digest": "text",
}
_CALLS = Rows("c", {"i": "int", **_CALL})
_APPLIED = Rows("a", {"i": "int", "ticket": "uuid"})

# Without a transaction the statement itself locks the rows and checks that the run may be written.
#
# The tickets are read in the snapshot of the statement's begin, also if it then waits for the run's lock. That is
# enough: only the run itself opens and applies tickets, so a ticket that is decided meanwhile was unsettled before.
_LOCKS = """thread AS (
    SELECT w.i, t.state FROM wanted w JOIN threads t ON t.tenant = w.tenant AND t.id = w.thread_id
    WHERE t.next_message_seq = w.next_seq AND (w.status <> 'done' OR t.queue_length = 0)
    ORDER BY t.tenant, t.id
    FOR NO KEY UPDATE OF t
), run AS (
    SELECT w.i, r.owner, r.root_run_id, r.started_by, r.unread_inputs, r.open_tasks, r.pause_requested_at,
        coalesce(thread.state, '{}') AS thread_state_before
    FROM wanted w JOIN thread ON thread.i = w.i
    JOIN runs r ON r.tenant = w.tenant AND r.id = w.run_id
    -- IS TRUE: the run is searched by its key, not among all running runs in an index of them.
    WHERE r.attempt = w.attempt AND (r.status = 'running') IS TRUE
        AND (w.status <> 'done'
            OR (r.unread_inputs = 0 AND r.open_tasks = 0 AND r.rolled_back_by IS NULL))
        /* may suspend */
    ORDER BY r.tenant, r.id
    FOR NO KEY UPDATE OF r
), owned AS (
    SELECT w.*, run.root_run_id, run.started_by, run.thread_state_before
    FROM wanted w JOIN run ON run.i = w.i
    JOIN event_heads h ON h.tenant = w.tenant AND h.thread_id = w.thread_id
    WHERE h.run_id = w.run_id AND h.attempt = w.attempt
    ORDER BY h.tenant, h.thread_id
    FOR NO KEY UPDATE OF h
)"""
_ORDER_BY = re.compile(r"\n +ORDER BY .*")
_MAY_SUSPEND = f"""AND (w.status <> 'waiting'
            OR (r.open_tasks = 0 AND r.cancel_requested_at IS NULL AND r.pause_requested_at IS NULL
                AND NOT EXISTS (
                    SELECT FROM tickets k WHERE k.tenant = r.tenant AND k.run_id = r.id
                        AND {IS_UNSETTLED}
                        AND NOT EXISTS (SELECT FROM {_APPLIED.sql}
                            WHERE a.i = w.i AND a.ticket = k.id))))"""
_RUN_OF_THREAD = """
        open_run_id = CASE WHEN o.status = 'done' THEN NULL ELSE t.open_run_id END,"""

# In a transaction, the caller has locked the rows, made the checks, and gives what it has found out.
_LOCKED = """locked AS (
    SELECT * FROM jsonb_to_record(:locked::text::jsonb) AS l(open_run_id uuid, queue_length int,
        unread_inputs int, open_tasks int, waiting_until timestamptz, infers_input bool,
        input_from bigint, input_to bigint, input_ids uuid[])
), run AS (
    SELECT w.i, r.owner, r.root_run_id, r.started_by, l.unread_inputs, l.open_tasks, r.pause_requested_at
    FROM wanted w JOIN runs r ON r.tenant = w.tenant AND r.id = w.run_id CROSS JOIN locked l
), owned AS (
    SELECT w.*, l.*, run.root_run_id, run.started_by, coalesce(t.state, '{}') AS thread_state_before
    FROM wanted w JOIN run ON run.i = w.i
    JOIN threads t ON t.tenant = w.tenant AND t.id = w.thread_id CROSS JOIN locked l
)"""
_RUN_OF_LOCKED_THREAD = """
        open_run_id = o.open_run_id, queue_length = o.queue_length,"""
_LOCKED_COLUMNS = """
        unread_inputs = o.unread_inputs, open_tasks = o.open_tasks, waiting_until = o.waiting_until,
        input_from = CASE WHEN o.infers_input THEN o.input_from ELSE r.input_from END,
        input_to = CASE WHEN o.infers_input THEN o.input_to ELSE r.input_to END,
        input_ids = CASE WHEN o.infers_input THEN o.input_ids ELSE r.input_ids END,"""

_MESSAGE = f"""message AS (
    {insert_messages("o.tenant", "o.thread_id", "o.next_seq", ":at", "JOIN owned o ON o.i = m.i")}
)"""
_CALL_WRITTEN = f"""call AS (
    INSERT INTO tool_calls AS t (tenant, run_id, {", ".join(_CALL)}, attempt, worker, started_at, updated_at)
    SELECT o.tenant, o.run_id, {", ".join(f"c.{name}" for name in _CALL)}, o.attempt,
        CASE WHEN c.status = 'running' THEN run.owner END, CASE WHEN c.status = 'running' THEN :at END, :at
    FROM {_CALLS.sql} JOIN owned o ON o.i = c.i JOIN run ON run.i = c.i
    ON CONFLICT (tenant, run_id, step_index, call_id) DO UPDATE
        SET status = excluded.status, edited_arguments = excluded.edited_arguments,
            unreported_outcome = excluded.unreported_outcome, attempt = excluded.attempt,
            worker = coalesce(excluded.worker, t.worker),
            started_at = coalesce(excluded.started_at, t.started_at), updated_at = excluded.updated_at
)"""
_DELETED_CALLS = """deleted_calls AS (
    DELETE FROM tool_calls t USING owned o
    WHERE o.all_calls_done AND t.tenant = o.tenant AND t.run_id = o.run_id
)"""
_TICKETS_APPLIED = f"""applied AS (
    -- After the event head is no breach of the lock order: tickets are only written under their run's lock.
    UPDATE tickets t SET applied_at = :at FROM {_APPLIED.sql} JOIN owned o ON o.i = a.i
    WHERE t.tenant = o.tenant AND t.id = a.ticket AND t.applied_at IS NULL
)"""

_CHECKPOINT = f"""
WITH wanted AS (SELECT * FROM {_RUNS.sql}), /* locks */, updated_thread AS (
    UPDATE threads t SET next_message_seq = t.next_message_seq + o.messages, updated_at = :at,
        /* run of thread */ state = coalesce(o.thread_state, t.state)
    FROM owned o WHERE t.tenant = o.tenant AND t.id = o.thread_id
), updated_run AS (
    UPDATE runs r SET {", ".join(f"{name} = o.{name}" for name in _WRITTEN)},/* locked columns */
        losses = CASE WHEN o.is_progress THEN 0 ELSE r.losses END,
        owner = CASE WHEN o.status = 'running' THEN r.owner END,
        finished_at = CASE WHEN o.status = 'done' THEN :at END,
        thread_state_before = CASE WHEN o.thread_state IS NULL THEN r.thread_state_before
            ELSE coalesce(r.thread_state_before, o.thread_state_before) END,
        updated_at = :at
    FROM owned o WHERE r.tenant = o.tenant AND r.id = o.run_id
)/* message *//* call *//* deleted calls */, head AS (
    UPDATE event_heads h SET next_seq = h.next_seq + o.events,
        run_id = CASE WHEN o.status = 'running' OR h.run_id <> o.run_id THEN h.run_id END,
        attempt = CASE WHEN o.status = 'running' OR h.run_id <> o.run_id THEN h.attempt END
    FROM owned o WHERE h.tenant = o.tenant AND h.thread_id = o.thread_id
    RETURNING o.i, h.next_seq - o.events AS first_seq
), event AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, step, ts, event_type, body)
    SELECT o.tenant, o.thread_id, head.first_seq + e.position, o.run_id, e.step, :at, e.event_type, e.body
    FROM {EVENTS.sql} JOIN owned o ON o.i = e.i JOIN head ON head.i = e.i
)/* applied *//* opened *//* billed */
SELECT head.i, head.first_seq, run.unread_inputs, run.open_tasks,
    run.pause_requested_at IS NOT NULL AS is_paused
FROM head JOIN run ON run.i = head.i
"""


class _Parts(Struct, frozen=True, kw_only=True):
    """The parts of the statement that these checkpoints need. Each costs Postgres time, also without rows."""

    messages: bool
    calls: bool
    deleted_calls: bool
    applied: bool
    suspends: bool
    billed: bool
    is_locked: bool
    is_one: bool
    """One checkpoint locks one row of each table, so the statement doesn't sort them."""

    @classmethod
    def of(cls, checkpoints: Sequence[Checkpoint], *, is_locked: bool) -> Self:
        suspends = any(c.opened or isinstance(c.state, Waiting) for c in checkpoints)
        return cls(
            messages=any(c.messages for c in checkpoints),
            calls=any(c.calls and not c.calls_settled for c in checkpoints),
            deleted_calls=any(c.calls_settled for c in checkpoints),
            # A run suspends only if all its tickets are open or applied.
            applied=suspends or any(c.applied for c in checkpoints),
            suspends=suspends,
            billed=any(c.billed for c in checkpoints),
            is_locked=is_locked,
            is_one=len(checkpoints) == 1,
        )


@cache
def _statement(parts: _Parts) -> NamedSql:
    locks = _LOCKED if parts.is_locked else _LOCKS
    if parts.is_one:
        locks = _ORDER_BY.sub("", locks)
    opened = opened_ctes(":opened", "JOIN owned o ON o.i = k.i")
    texts = {
        "locks": locks.replace("/* may suspend */", _MAY_SUSPEND if parts.suspends else ""),
        "run of thread": _RUN_OF_LOCKED_THREAD if parts.is_locked else _RUN_OF_THREAD,
        "locked columns": _LOCKED_COLUMNS if parts.is_locked else "",
        "message": f", {_MESSAGE}" if parts.messages else "",
        "call": f", {_CALL_WRITTEN}" if parts.calls else "",
        "deleted calls": f", {_DELETED_CALLS}" if parts.deleted_calls else "",
        "applied": f", {_TICKETS_APPLIED}" if parts.applied else "",
        "opened": f", {opened}" if parts.suspends else "",
        "billed": f", {billed_cte(':billed', 'owned o')}" if parts.billed else "",
    }
    text = _CHECKPOINT
    for name, part in texts.items():
        text = text.replace(f"/* {name} */", part)
    return NamedSql(text)


def checkpoint_query(
    writes: Sequence[tuple[Checkpoint, Sequence[EventEntry]]],
    at: datetime,
    locked: dict[str, Any] | None = None,
) -> list[Any]:
    """The statement for these checkpoints and its arguments. Its parts are left out if they have no rows.

    `locked` is for the one checkpoint of a transaction: the new values of columns that depend on locked rows.
    """
    checkpoints = [checkpoint for checkpoint, _ in writes]
    parts = _Parts.of(checkpoints, is_locked=locked is not None)
    more: dict[str, Any] = {}
    if parts.messages:
        more |= message_values(checkpoint.messages for checkpoint in checkpoints)
    if parts.calls:
        more |= _CALLS.values(_call_rows(checkpoints))
    if parts.applied:
        more |= _APPLIED.values(_applied_rows(checkpoints))
    if parts.suspends:
        more["opened"] = opened_json(
            (i, c.tenant, ticket) for i, c in enumerate(checkpoints, 1) for ticket in c.opened
        )
    if parts.billed:
        more["billed"] = billed_json(
            (i, each) for i, c in enumerate(checkpoints, 1) for each in c.billed
        )
    if locked is not None:
        more["locked"] = storable_json(locked)
    return _statement(parts)(
        at=at,
        **_RUNS.values(_run_row(checkpoint, len(events)) for checkpoint, events in writes),
        **event_values(entries for _, entries in writes),
        **more,
    )


def _run_row(checkpoint: Checkpoint, events: int) -> dict[str, Any]:
    state, output = checkpoint.state, checkpoint.output
    waiting = state if isinstance(state, Waiting) else None
    done = state if isinstance(state, Done) else None
    return {
        "tenant": checkpoint.tenant,
        "thread_id": checkpoint.thread_id,
        "run_id": checkpoint.run_id,
        "attempt": checkpoint.attempt,
        "next_seq": checkpoint.next_seq,
        "messages": len(checkpoint.messages),
        "events": events,
        "is_progress": checkpoint.is_progress,
        "all_calls_done": checkpoint.calls_settled,
        "thread_state": _json(checkpoint.thread_state),
        "status": status_of(state).value,
        "steps": checkpoint.steps,
        "input_tokens": checkpoint.usage.input_tokens,
        "output_tokens": checkpoint.usage.output_tokens,
        "state": storable_json(checkpoint.run_state),
        "output_from": output.range.from_seq if output.range else None,
        "output_to": output.range.to_seq if output.range else None,
        "output_ids": "{" + ",".join(output.message_ids) + "}",
        "waiting_reason": None if waiting is None else waiting.reason.value,
        "waiting_message": None if waiting is None else storable(waiting.message),
        "termination": None if done is None else _json(termination_to_json(done.termination)),
        "final_output": None if done is None else storable(done.final_output),
        "structured_output": None if done is None else _json(done.structured_output),
    }


def _call_rows(checkpoints: Sequence[Checkpoint]) -> Iterable[dict[str, Any]]:
    for i, checkpoint in enumerate(checkpoints, 1):
        for call in () if checkpoint.calls_settled else checkpoint.calls:
            unreported = call.unreported_outcome
            yield {
                "i": i,
                "step_index": call.step_index,
                "call_id": call.call.id,
                "position": call.position,
                "name": call.call.name,
                "arguments": storable_json(call.call.arguments),
                "edited_arguments": _json(call.edited_arguments),
                "unreported_outcome": None
                if unreported is None
                else storable_json(outcome_to_json(unreported)),
                "status": call.status.value,
                "effect": call.effect.value,
                "idempotency_key": call.idempotency_key,
                "tool_digest": call.tool_digest,
            }


def _applied_rows(checkpoints: Sequence[Checkpoint]) -> Iterable[dict[str, Any]]:
    for i, checkpoint in enumerate(checkpoints, 1):
        for ticket in checkpoint.applied:
            yield {"i": i, "ticket": ticket}


def _json(value: Any) -> str | None:
    return None if value is None else storable_json(value)
