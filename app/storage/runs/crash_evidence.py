"""Collects evidence about a call whose worker died: the worker, streamed output and progress."""

from datetime import datetime

from sqlalchemy import Select, cast, select
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.events.tool_call_events import ActivitySnapshot, ToolCallStreamDelta
from app.domain.ids import CallId, RunId, Tenant, ThreadId, WorkerId
from app.domain.json_values import parsed
from app.domain.tools.crash_evidence import MAX_STREAMED_CHARACTERS, CrashEvidence, LostWorker
from app.storage.postgres.database import Connection
from app.storage.tables import events, tool_calls, workers

PROGRESS = "tool-call-progress"
_MAX_DELTAS = 200
"""Output deltas that are read, the newest first."""


async def evidence_of(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    call_id: CallId,
    *,
    since: datetime | None,
) -> CrashEvidence:
    """The worker of a call, and the output and progress that the call has emitted since its start."""
    bodies = _bodies_of_run(tenant, thread_id, run_id, since)
    body = cast(events.c.body, JSONB)
    deltas = await connection.execute(
        bodies.where(
            events.c.event_type == ToolCallStreamDelta.event_type,
            body["tool_call_id"].astext == call_id,
        ).limit(_MAX_DELTAS)
    )
    streamed = "".join(reversed([parsed(delta.body)["delta"] for delta in deltas]))
    snapshots = await connection.execute(
        bodies.where(
            events.c.event_type == ActivitySnapshot.event_type,
            body["activity_type"].astext == PROGRESS,
            body["content"]["tool_call_id"].astext == call_id,
        ).limit(1)
    )
    progress = snapshots.first()
    return CrashEvidence(
        await _worker(connection, tenant, run_id, call_id),
        streamed[-MAX_STREAMED_CHARACTERS:],
        None if progress is None else parsed(progress.body)["content"],
    )


def _bodies_of_run(
    tenant: Tenant, thread_id: ThreadId, run_id: RunId, since: datetime | None
) -> Select[tuple[str]]:
    """The events of a run, newest first."""
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
