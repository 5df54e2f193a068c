"""The four hot statements as sequences of plain statements, for one run at a time."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.domain.checkpoints import Checkpoint, CheckpointSaved, PendingEvent
from app.domain.events.input_events import InputDelivered
from app.domain.ids import WorkerId
from app.domain.runs.rate_limits import partial_answer_of
from app.domain.runs.runs import Done, NewRun
from app.storage.checkpoints import single
from app.storage.checkpoints.batched import CheckpointWritten
from app.storage.codec import message_columns
from app.storage.events import event_log
from app.storage.events.batched_append import Flush
from app.storage.events.event_log import EventEntry, entry
from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import Database
from app.storage.threads import threads
from tests.support.stored_runs import TIMEOUT


async def _append_event(
    connection: RawConnection, run: NewRun | Flush, run_id: str, one: EventEntry, at: datetime
) -> int:
    await connection.execute(
        "INSERT INTO event_heads (tenant, thread_id, next_seq) VALUES ($1, $2, 1) "
        "ON CONFLICT DO NOTHING",
        run.tenant,
        run.thread_id,
    )
    seq: int = await connection.fetchval(
        "UPDATE event_heads SET next_seq = next_seq + 1 WHERE tenant = $1 AND thread_id = $2 "
        "RETURNING next_seq - 1",
        run.tenant,
        run.thread_id,
    )
    await connection.execute(
        "INSERT INTO events (tenant, thread_id, seq, run_id, step, ts, event_type, body) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        *(run.tenant, run.thread_id, seq, run_id, one.step, at, one.event_type, one.body),
    )
    return seq


async def _append_message(
    connection: RawConnection, run: NewRun, seq: int, id: str, role: str, content: str
) -> None:
    await connection.execute(
        "INSERT INTO messages (tenant, thread_id, seq, message_id, role, content) "
        "VALUES ($1, $2, $3, $4, $5, $6::text::jsonb)",
        *(run.tenant, run.thread_id, seq, id, role, content),
    )


async def admit(
    connection: RawConnection,
    run: NewRun,
    owner: WorkerId,
    emitted: Sequence[EventEntry],
    at: datetime,
) -> tuple[int, int] | None:
    async with connection.transaction():
        thread = await connection.fetchrow(
            "SELECT * FROM threads WHERE tenant = $1 AND id = $2 FOR UPDATE",
            run.tenant,
            run.thread_id,
        )
        taken = await connection.fetchval(
            "SELECT true FROM runs WHERE tenant = $1 AND id = $2", run.tenant, run.id
        )
        if taken or (thread and (thread["open_run_id"] or thread["queue_length"])):
            return None
        if thread is None:
            await connection.execute(
                "INSERT INTO threads (tenant, id, key) VALUES ($1, $2, $3)",
                *(run.tenant, run.thread_id, run.thread_key),
            )
        first = thread["next_message_seq"] if thread else 1
        last = first + len(run.messages) - 1
        numbers = [await _append_event(connection, run, run.id, one, at) for one in emitted]
        await connection.execute(
            "INSERT INTO runs (tenant, id, thread_id, agent_id, agent_version, status, admitted, "
            "root_run_id, request, request_digest, metadata, started_by, attempt, owner, events_from, "
            "input_from, input_to, input_ids, thread_key) VALUES ($1, $2, $3, $4, $5, 'running', true, "
            "$2, $6::text::jsonb, $7, $8::text::jsonb, $9, 1, $10, $11, $12, $13, $14, "
            "(SELECT coalesce(key, $15) FROM threads WHERE tenant = $1 AND id = $3))",
            *(run.tenant, run.id, run.thread_id, run.agent_id, run.agent_version),
            *(json.dumps(run.request), run.request_digest, json.dumps(run.metadata)),
            *(run.started_by, owner, numbers[0], first, last, [m.id for m in run.messages]),
            run.thread_key,
        )
        for seq, one in enumerate(run.messages, first):
            columns = message_columns(one)
            await _append_message(connection, run, seq, one.id, one.role, columns["content"])
        await connection.execute(
            "UPDATE threads SET next_message_seq = $3, open_run_id = $4, latest_run_id = $4, "
            "key = coalesce(key, $5) WHERE tenant = $1 AND id = $2",
            *(run.tenant, run.thread_id, last + 1, run.id, run.thread_key),
        )
        await connection.execute(
            "UPDATE event_heads SET run_id = $3, attempt = 1 WHERE tenant = $1 AND thread_id = $2",
            *(run.tenant, run.thread_id, run.id),
        )
    return first, numbers[0]


async def claim(
    connection: RawConnection, run: NewRun, owner: WorkerId
) -> tuple[int, str, bool, int] | None:
    """Attempt, status before, whether it was taken over, and the log's next number."""
    async with connection.transaction():
        next_seq = await connection.fetchval(
            "SELECT next_message_seq FROM threads WHERE tenant = $1 AND id = $2 FOR UPDATE",
            *(run.tenant, run.thread_id),
        )
        row = await connection.fetchrow(
            "SELECT * FROM runs WHERE tenant = $1 AND id = $2 FOR UPDATE", run.tenant, run.id
        )
        if row is None or not row["admitted"] or row["status"] == "done":
            return None
        is_held = row["pause_requested_at"] is not None and row["cancel_requested_at"] is None
        if is_held and row["status"] != "running":
            return None
        if row["owner"] is not None and await connection.fetchval(
            "SELECT extract(epoch FROM now() - heartbeat_at) < $2 FROM workers WHERE id = $1",
            *(row["owner"], TIMEOUT),
        ):
            return None
        if row["waiting_until"] is not None and row["cancel_requested_at"] is None:
            if row["waiting_until"] > await connection.fetchval("SELECT now()"):
                return None
        waiting = await connection.fetch(
            "SELECT id, message FROM inputs WHERE tenant = $1 AND run_id = $2 "
            "AND status = 'pending' ORDER BY position",
            *(run.tenant, run.id),
        )
        if partial_answer_of(row["state"] or {}) is not None:
            waiting = []
        ids: list[str] = []
        for seq, one in enumerate(waiting, next_seq):
            body: dict[str, Any] = one["message"]
            content = json.dumps(body["content"])
            await _append_message(connection, run, seq, body["id"], body["role"], content)
            await connection.execute(
                "UPDATE inputs SET status = 'consumed', consumed_seq = $3 "
                "WHERE tenant = $1 AND id = $2",
                *(run.tenant, one["id"], seq),
            )
            delivered = InputDelivered(str(one["id"]), body["id"], seq)
            at = await connection.fetchval("SELECT now()")
            await _append_event(connection, run, run.id, entry(PendingEvent(delivered, None)), at)
            ids.append(body["id"])
        await connection.execute(
            "UPDATE threads SET next_message_seq = $3 WHERE tenant = $1 AND id = $2",
            *(run.tenant, run.thread_id, next_seq + len(ids)),
        )
        await connection.execute(
            "UPDATE runs SET status = 'running', attempt = attempt + 1, owner = $3, losses = $4, "
            "unread_inputs = unread_inputs - $5, "
            "waiting_reason = NULL, waiting_message = NULL, waiting_until = NULL "
            "WHERE tenant = $1 AND id = $2",
            *(run.tenant, run.id, owner, row["losses"] + (row["owner"] is not None), len(ids)),
        )
        if ids and row["input_from"] is None:
            await connection.execute(
                "UPDATE runs SET input_from = $3, input_to = $4, input_ids = $5::uuid[] "
                "WHERE tenant = $1 AND id = $2",
                *(run.tenant, run.id, next_seq, next_seq + len(ids) - 1, ids),
            )
        await connection.execute(
            "UPDATE event_heads SET run_id = $3, attempt = $4 WHERE tenant = $1 AND thread_id = $2",
            *(run.tenant, run.thread_id, run.id, row["attempt"] + 1),
        )
    return row["attempt"] + 1, row["status"], row["owner"] is not None, next_seq + len(ids)


async def flush(
    connection: RawConnection, flushes: Sequence[Flush], at: datetime
) -> dict[int, int]:
    written: dict[int, int] = {}
    for index, one in enumerate(flushes):
        async with connection.transaction():
            owned = await connection.fetchval(
                "SELECT true FROM event_heads WHERE tenant = $1 AND thread_id = $2 "
                "AND run_id = $3 AND attempt = $4",
                *(one.tenant, one.thread_id, one.run_id, one.attempt),
            )
            if owned:
                seqs = [
                    await _append_event(connection, one, one.run_id, emitted, at)
                    for emitted in one.entries
                ]
                written[index] = seqs[0]
    return written


async def checkpoint(
    database: Database, writes: Sequence[tuple[Checkpoint, Sequence[EventEntry]]], at: datetime
) -> dict[int, CheckpointWritten]:
    """Each checkpoint, except an end that admits a queued run."""
    written: dict[int, CheckpointWritten] = {}
    for index, (one, entries) in enumerate(writes):
        async with database.transaction() as connection:
            thread = await threads.lock(connection, one.tenant, one.thread_id)
            if isinstance(one.state, Done) and thread is not None and thread.queue_length:
                continue
            if thread is not None and thread.next_message_seq != one.next_seq:
                continue
            saved = await single.save(connection, one, at=at)
            if not isinstance(saved, CheckpointSaved):
                continue
            emitted = [(one.run_id, entry) for entry in entries]
            first = await event_log.append_events(
                connection, one.tenant, one.thread_id, emitted, at
            )
            written[index] = CheckpointWritten(
                first, saved.unread_inputs, saved.open_tasks, saved.is_paused
            )
    return written
