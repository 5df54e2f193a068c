"""Runs: rows, cancel requests and releases. Writers hold the locks they name."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from sqlalchemy import (
    bindparam,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.json_values import JsonObject, storable
from app.domain.runs.runs import NewRun, RunRecord, RunStatus
from app.storage.codec import run_of
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql
from app.storage.postgres.statements import prepared
from app.storage.tables import runs


class RunKey(Struct, frozen=True):
    """What a delivery names: a run, and the attempt that it had when the delivery was queued."""

    tenant: Tenant
    thread_id: ThreadId
    run_id: RunId
    attempt: int


_BY_KEY = select(runs).where(runs.c.tenant == bindparam("tenant"), runs.c.id == bindparam("id"))
_GET = prepared(_BY_KEY)
_LOCK = prepared(_BY_KEY.with_for_update(key_share=True))


async def get(connection: Connection, tenant: Tenant, run_id: RunId) -> RunRecord | None:
    row = (await connection.execute(_GET, {"tenant": tenant, "id": run_id})).one_or_none()
    return None if row is None else run_of(row)


async def lock(connection: Connection, tenant: Tenant, run_id: RunId) -> RunRecord | None:
    """Lock a run until commit and read it. The thread's lock comes first."""
    row = (await connection.execute(_LOCK, {"tenant": tenant, "id": run_id})).one_or_none()
    return None if row is None else run_of(row)


_LOCK_FOR_DECISION = prepared(
    text("""
WITH thread AS (
    SELECT t.tenant, t.id FROM threads t
    WHERE t.tenant = :tenant
        AND t.id = (SELECT thread_id FROM runs WHERE tenant = :tenant AND id = :id)
    FOR NO KEY UPDATE
)
SELECT r.* FROM thread
JOIN runs r ON r.tenant = thread.tenant AND r.thread_id = thread.id AND r.id = :id
WHERE NOT EXISTS (
    SELECT FROM tickets k
    WHERE k.tenant = r.tenant AND k.id = ANY(CAST(:tickets AS uuid[])) AND k.run_id <> r.id
)
FOR NO KEY UPDATE OF r
""")
)


async def lock_for_decision(
    connection: Connection, tenant: Tenant, run_id: RunId, ticket_ids: Sequence[str]
) -> RunRecord | None:
    """Lock a run's thread, then the run, until commit. None if one of the tickets is of another run."""
    values = {"tenant": tenant, "id": run_id, "tickets": list(ticket_ids)}
    row = (await connection.execute(_LOCK_FOR_DECISION, values)).one_or_none()
    return None if row is None else run_of(row)


async def use_one_snapshot(connection: Connection) -> None:
    """Let all statements of this transaction read the same snapshot. Must be its first statement."""
    await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))


async def request_digest(connection: Connection, tenant: Tenant, run_id: RunId) -> str | None:
    """The digest of the request that started the run, to recognise a repeated request."""
    statement = select(runs.c.request_digest).where(runs.c.tenant == tenant, runs.c.id == run_id)
    digest: str | None = (await connection.execute(statement)).scalar_one_or_none()
    return digest


async def insert_created(
    connection: Connection, run: NewRun, *, admitted: bool, events_from: int, at: datetime
) -> bool:
    """Insert a run that no worker executes yet; False, and nothing written, if its id exists."""
    lineage = run.lineage
    run_input = run.input
    before = select(runs.c.thread_state_before).where(
        runs.c.tenant == run.tenant, runs.c.id == lineage.retry_of
    )
    input_range = None if run_input is None else run_input.range
    result = await connection.execute(
        insert(runs)
        .values(
            tenant=run.tenant,
            id=run.id,
            thread_id=run.thread_id,
            thread_key=run.thread_key,
            agent_id=run.agent_id,
            agent_version=run.agent_version,
            status=RunStatus.CREATED.value,
            admitted=admitted,
            root_run_id=lineage.root_run_id,
            parent_run_id=lineage.parent_run_id,
            parent_thread_id=lineage.parent_thread_id,
            parent_call_id=lineage.parent_call_id,
            depth=lineage.depth,
            retry_of=lineage.retry_of,
            request=storable(run.request),
            request_digest=run.request_digest,
            metadata=storable(run.metadata),
            started_by=run.started_by,
            traceparent=run.traceparent,
            input_from=None if input_range is None else input_range.from_seq,
            input_to=None if input_range is None else input_range.to_seq,
            input_ids=[] if run_input is None else list(run_input.trigger_message_ids),
            events_from=events_from,
            # A rollback of this run also rolls back the run that it retries.
            thread_state_before=before.scalar_subquery() if lineage.retry_of else None,
            created_at=at,
            updated_at=at,
        )
        .on_conflict_do_nothing(index_elements=["tenant", "id"])
    )
    return result.rowcount == 1


async def request_cancel(
    connection: Connection, tenant: Tenant, run_id: RunId, *, by: str, reason: str | None
) -> bool:
    """Write a cancel request; False if the run has one. The caller holds the run's lock."""
    result = await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id, runs.c.cancel_requested_at.is_(None))
        .values(
            cancel_requested_at=func.now(),
            cancel_requested_by=by,
            cancel_reason=storable(reason),
        )
    )
    return result.rowcount == 1


async def lock_key(connection: Connection, tenant: Tenant, run_id: RunId) -> RunKey | None:
    """Lock a run that isn't done. Reads only its key: other columns may be unreadable."""
    statement = (
        select(runs.c.thread_id, runs.c.attempt)
        .where(runs.c.tenant == tenant, runs.c.id == run_id, runs.c.status != RunStatus.DONE.value)
        .with_for_update(key_share=True)
    )
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return None
    return RunKey(tenant, ThreadId(row.thread_id), run_id, row.attempt)


async def thread_of(connection: Connection, tenant: Tenant, run_id: RunId) -> ThreadId | None:
    """The thread of a run. It never changes, so no lock is needed."""
    statement = select(runs.c.thread_id).where(runs.c.tenant == tenant, runs.c.id == run_id)
    found = await connection.scalar(statement)
    return None if found is None else ThreadId(found)


async def request_rollback(
    connection: Connection, tenant: Tenant, run_id: RunId, *, by: RunId
) -> bool:
    """Request that a run is rolled back once it is done; False if that was requested before.

    The caller holds the run's lock.
    """
    result = await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id, runs.c.rolled_back_by.is_(None))
        .values(rolled_back_by=by)
    )
    return result.rowcount == 1


_ROLL_BACK_FROM = NamedSql("""
WITH replaced AS (
    UPDATE runs SET rolled_back_by = :by
    WHERE tenant = :tenant AND thread_id = :thread_id AND input_from >= :from_seq AND rolled_back_by IS NULL AND id <> :by
    RETURNING id, events_from, thread_state_before IS NOT NULL AS has_changed_state
)
SELECT id FROM replaced WHERE has_changed_state ORDER BY events_from LIMIT 1
""")


async def roll_back_from(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, from_seq: int, *, by: RunId
) -> RunId | None:
    """Mark the runs as rolled back that were started with a message from `from_seq` on.

    Returns the first of them that has changed the thread's state. The caller holds the thread's lock; all runs are
    done but `by`.
    """
    found = await connection.driver.fetchval(
        *_ROLL_BACK_FROM(tenant=tenant, thread_id=thread_id, from_seq=from_seq, by=by)
    )
    return None if found is None else RunId(str(found))


async def cancel_reason(connection: Connection, tenant: Tenant, run_id: RunId) -> str | None:
    statement = select(runs.c.cancel_reason).where(runs.c.tenant == tenant, runs.c.id == run_id)
    reason: str | None = (await connection.execute(statement)).scalar_one_or_none()
    return reason


async def set_state_of_done(
    connection: Connection, tenant: Tenant, run_id: RunId, state: JsonObject
) -> None:
    """Replace the state of a run that is done."""
    await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id)
        .where(runs.c.status == RunStatus.DONE.value)
        .values(state=storable(state))
    )


async def release(
    connection: Connection, tenant: Tenant, run_id: RunId, attempt: int, *, failed: bool
) -> bool:
    """Give up ownership, so that another worker may claim at once; False if it was lost before.

    A failure counts as a loss. The time since the last checkpoint is added to `lost_seconds`.
    """
    unsaved = func.extract("epoch", func.now() - runs.c.updated_at)
    result = await connection.execute(
        update(runs)
        .where(
            runs.c.tenant == tenant,
            runs.c.id == run_id,
            runs.c.attempt == attempt,
            runs.c.status == RunStatus.RUNNING.value,
        )
        .values(
            owner=None,
            losses=runs.c.losses + int(failed),
            lost_seconds=runs.c.lost_seconds + func.greatest(0, unsaved),
            updated_at=func.now(),
        )
    )
    return result.rowcount == 1


async def count_task_ended(connection: Connection, tenant: Tenant, run_id: RunId) -> None:
    """Decrement the run's open tasks. The caller holds the run's lock and has ended the task."""
    await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id)
        .values(open_tasks=runs.c.open_tasks - 1)
    )


class RunStream(Struct, frozen=True):
    """Where a run's events are: its thread, the number of its first one, and whether there will be more."""

    thread_id: ThreadId
    events_from: int
    is_done: bool


async def stream_of_run(pool: RawPool, tenant: Tenant, run_id: RunId) -> RunStream | None:
    """Reads three columns. Thousands of clients reopen their streams at once."""
    row = await pool.fetchrow(
        "SELECT thread_id, events_from, status FROM runs WHERE tenant = $1 AND id = $2",
        tenant,
        run_id,
    )
    if row is None:
        return None
    is_done = row["status"] == RunStatus.DONE.value
    return RunStream(ThreadId(row["thread_id"]), row["events_from"], is_done)


_STATUS = """
SELECT r.status, (SELECT h.next_seq - 1 FROM event_heads h
    WHERE h.tenant = r.tenant AND h.thread_id = r.thread_id) AS last_event,
    r.status = 'waiting' AND (r.pause_requested_at IS NOT NULL OR EXISTS (
    SELECT FROM tickets t WHERE t.tenant = r.tenant AND t.run_id = r.id
        AND t.status = 'open' AND t.kind NOT IN ('child', 'event')
    UNION ALL
    SELECT FROM child_tickets c JOIN tickets t ON t.tenant = c.tenant AND t.id = c.ticket
    WHERE c.tenant = r.tenant AND c.run_id = r.id AND c.status = 'open' AND t.status = 'open')
    -- With a decided ticket and no limit ticket, a worker resumes the run before it needs the next decision.
    AND NOT (r.waiting_reason <> 'agent_version_unavailable' AND EXISTS (
        SELECT FROM tickets t WHERE t.tenant = r.tenant AND t.run_id = r.id
            AND t.status IN ('decided', 'expired') AND t.applied_at IS NULL)
        AND NOT EXISTS (SELECT FROM tickets t WHERE t.tenant = r.tenant AND t.run_id = r.id
            AND t.status = 'open' AND t.kind = 'limit'))) AS needs_decision
FROM runs r WHERE r.tenant = $1 AND r.id = $2
"""


class StoredStatus(Struct, frozen=True):
    """A run's status, and whether it waits until a person acts: decides whether a stream stays open."""

    status: RunStatus
    needs_decision: bool
    """The run waits, and a person has to decide a ticket or to resume it. Any other wait ends by itself."""
    last_event: int
    """The number of the thread's last event at the same moment."""


async def status_of_run(pool: RawPool, tenant: Tenant, run_id: RunId) -> StoredStatus | None:
    row = await pool.fetchrow(_STATUS, tenant, run_id)
    if row is None:
        return None
    return StoredStatus(RunStatus(row["status"]), row["needs_decision"], row["last_event"] or 0)
