"""Traces of calls in the log and among the workers, for whoever has to find out what became of one."""

import json
from datetime import datetime

from sqlalchemy import Select, cast, select
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.events.run_events import ActivitySnapshot, ToolCallStreamDelta
from app.domain.ids import CallId, RunId, Tenant, ThreadId, WorkerId
from app.domain.tools.crash_evidence import MAX_STREAMED_CHARACTERS, CrashEvidence, LostWorker
from app.storage.postgres.database import Connection
from app.storage.tables import events, tool_calls, workers

PROGRESS = "tool-call-progress"
_PIECES = 200
"""Of the output, the last ones that are read."""


async def evidence_of(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    call_id: CallId,
    *,
    since: datetime | None,
) -> CrashEvidence:
    """Who had the call, and what it said since it was handed to its tool."""
    said = _said(tenant, thread_id, run_id, since)
    body = cast(events.c.body, JSONB)
    pieces = await connection.execute(
        said.where(
            events.c.event_type == ToolCallStreamDelta.event_type, body["id"].astext == call_id
        ).limit(_PIECES)
    )
    streamed = "".join(reversed([json.loads(piece.body)["delta"] for piece in pieces]))
    shown = await connection.execute(
        said.where(
            events.c.event_type == ActivitySnapshot.event_type,
            body["activity_type"].astext == PROGRESS,
            body["content"]["call_id"].astext == call_id,
        ).limit(1)
    )
    progress = shown.first()
    return CrashEvidence(
        await _worker(connection, tenant, run_id, call_id),
        streamed[-MAX_STREAMED_CHARACTERS:],
        None if progress is None else json.loads(progress.body)["content"],
    )


def _said(
    tenant: Tenant, thread_id: ThreadId, run_id: RunId, since: datetime | None
) -> Select[tuple[str]]:
    """What a run has said, newest first."""
    statement = select(events.c.body).where(
        events.c.tenant == tenant, events.c.thread_id == thread_id, events.c.run_id == run_id
    )
    if since is not None:
        statement = statement.where(events.c.ts >= since)
    return statement.order_by(events.c.seq.desc())


async def _worker(
    connection: Connection, tenant: Tenant, run_id: RunId, call_id: CallId
) -> LostWorker | None:
    statement = (
        select(tool_calls.c.worker, workers.c.host, workers.c.pid, workers.c.heartbeat_at)
        .join_from(tool_calls, workers, workers.c.id == tool_calls.c.worker, isouter=True)
        .where(
            tool_calls.c.tenant == tenant,
            tool_calls.c.run_id == run_id,
            tool_calls.c.call_id == call_id,
            tool_calls.c.worker.is_not(None),
        )
        .order_by(tool_calls.c.step_index.desc())
    )
    row = (await connection.execute(statement)).first()
    if row is None:
        return None
    return LostWorker(WorkerId(row.worker), row.host, row.pid, row.heartbeat_at)
