"""Runs: read by anybody of their tenant, written by commands under the locks they name."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    cast,
    exists,
    func,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert

from app.domain.ids import AgentVersion, RunId, Tenant, ThreadId
from app.domain.json_values import JsonObject, storable
from app.domain.runs.runs import NewRun, RunFilter, RunRecord, RunStatus, WaitingReason
from app.domain.runs.terminations import TYPES_OF
from app.domain.slices import Slice
from app.domain.tickets.tickets import TicketKind, TicketStatus
from app.storage.codec import run_of
from app.storage.page_rows import page_rows
from app.storage.postgres.database import Connection, RawPool
from app.storage.runs.pauses import CLAIMABLE, NOT_PAUSED
from app.storage.tables import runs, threads, tickets, workers


@dataclass(frozen=True, slots=True)
class RunKey:
    """Enough to wake a run: which, and under which attempt it was last seen."""

    tenant: Tenant
    thread_id: ThreadId
    run_id: RunId
    attempt: int


async def get(connection: Connection, tenant: Tenant, run_id: RunId) -> RunRecord | None:
    statement = select(runs).where(runs.c.tenant == tenant, runs.c.id == run_id)
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else run_of(row)


async def lock(connection: Connection, tenant: Tenant, run_id: RunId) -> RunRecord | None:
    """The run as it stands once nobody else is writing it; taken after its thread's lock."""
    statement = (
        select(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id)
        .with_for_update(key_share=True)
    )
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else run_of(row)


async def see_one_instant(connection: Connection) -> None:
    """Let all statements of this transaction see the same state; to be its first one."""
    await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))


async def request_digest(connection: Connection, tenant: Tenant, run_id: RunId) -> str | None:
    """What the run was started with, to tell a repetition from another request."""
    statement = select(runs.c.request_digest).where(runs.c.tenant == tenant, runs.c.id == run_id)
    digest: str | None = (await connection.execute(statement)).scalar_one_or_none()
    return digest


async def insert_created(
    connection: Connection, run: NewRun, *, admitted: bool, events_from: int, at: datetime
) -> bool:
    """A run that nobody executes yet; False, and nothing written, when its id is taken."""
    lineage = run.lineage
    about = run.input
    before = select(runs.c.thread_state_before).where(
        runs.c.tenant == run.tenant, runs.c.id == lineage.retry_of
    )
    stretch = None if about is None else about.range
    result = await connection.execute(
        insert(runs)
        .values(
            tenant=run.tenant,
            id=run.id,
            thread_id=run.thread_id,
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
            input_from=None if stretch is None else stretch.from_seq,
            input_to=None if stretch is None else stretch.to_seq,
            input_ids=[] if about is None else list(about.trigger_message_ids),
            events_from=events_from,
            # Should it be rolled back, the run that it makes up for goes with it.
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
    """Make the wish to cancel durable; the first one counts, later ones get False. The caller holds the
    run's lock."""
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
    """Lock a run that hasn't ended by its key alone: other columns may be unreadable."""
    statement = (
        select(*_key_columns)
        .where(runs.c.tenant == tenant, runs.c.id == run_id, runs.c.status != RunStatus.DONE.value)
        .with_for_update(key_share=True)
    )
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return None
    return RunKey(tenant, ThreadId(row.thread_id), run_id, row.attempt)


async def thread_of(connection: Connection, tenant: Tenant, run_id: RunId) -> ThreadId | None:
    """The thread of a run; it never changes, so no lock is needed."""
    statement = select(runs.c.thread_id).where(runs.c.tenant == tenant, runs.c.id == run_id)
    found = await connection.scalar(statement)
    return None if found is None else ThreadId(found)


async def note_thread_state(connection: Connection, tenant: Tenant, run_id: RunId) -> None:
    """Keep what the thread remembers, before a run changes that for the first time; the caller holds
    the locks of both."""
    found = (
        select(func.coalesce(threads.c.state, cast({}, JSONB)))
        .where(threads.c.tenant == runs.c.tenant, threads.c.id == runs.c.thread_id)
        .scalar_subquery()
    )
    await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id, runs.c.thread_state_before.is_(None))
        .values(thread_state_before=found)
    )


async def request_rollback(
    connection: Connection, tenant: Tenant, run_id: RunId, *, by: RunId
) -> bool:
    """Make it durable that a run is to be taken out of the conversation at its end; False when it was
    before, by another one. The caller holds the run's lock."""
    result = await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id, runs.c.rolled_back_by.is_(None))
        .values(rolled_back_by=by)
    )
    return result.rowcount == 1


async def cancel_reason(connection: Connection, tenant: Tenant, run_id: RunId) -> str | None:
    statement = select(runs.c.cancel_reason).where(runs.c.tenant == tenant, runs.c.id == run_id)
    reason: str | None = (await connection.execute(statement)).scalar_one_or_none()
    return reason


async def set_state_of_done(
    connection: Connection, tenant: Tenant, run_id: RunId, state: JsonObject
) -> None:
    """Replace the state of a run that has ended."""
    await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id)
        .where(runs.c.status == RunStatus.DONE.value)
        .values(state=storable(state))
    )


async def release(
    connection: Connection, tenant: Tenant, run_id: RunId, attempt: int, *, failed: bool
) -> bool:
    """Give up ownership, so that another worker may claim at once; False when it was lost before.

    A worker that failed over the run counts as lost over it. What it has executed since its last
    checkpoint is kept.
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


_SWEEPING = 0x53776565


async def may_sweep(connection: Connection) -> bool:
    """At most one process sweeps; the others have their turn when its transaction ends."""
    statement = select(func.pg_try_advisory_xact_lock(_SWEEPING))
    return bool((await connection.execute(statement)).scalar_one())


async def without_owner(
    connection: Connection, *, heartbeat_timeout: float, grace: float, limit: int
) -> list[RunKey]:
    """Runs that ought to be moving and have no live owner, of every tenant; for the sweeper.

    A run that was touched within `grace` and never had an owner has a delivery on its way.
    """
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(is_without_owner(heartbeat_timeout, grace), CLAIMABLE)
        .order_by(runs.c.updated_at)
        .limit(limit),
    )


def is_without_owner(heartbeat_timeout: float, grace: float) -> ColumnElement[bool]:
    """An admitted run that is not suspended, and that no live worker owns."""
    alive = exists().where(
        workers.c.id == runs.c.owner,
        workers.c.heartbeat_at > func.now() - timedelta(seconds=heartbeat_timeout),
    )
    settled = runs.c.updated_at < func.now() - timedelta(seconds=grace)
    return and_(
        runs.c.admitted,
        runs.c.status.in_((RunStatus.CREATED.value, RunStatus.RUNNING.value)),
        or_(runs.c.owner.is_(None) & settled, runs.c.owner.is_not(None) & ~alive),
    )


async def with_unnoticed_decision(
    connection: Connection, *, grace: float, limit: int
) -> list[RunKey]:
    """Runs that wait although a ticket of theirs was answered, or expired, `grace` ago; for the sweeper.

    Found by their tickets, because a million runs may wait. One that waits for its agent's version, for a
    moment, or to be let go on beyond a limit, couldn't use the answer.
    """
    mine = (tickets.c.tenant == runs.c.tenant) & (tickets.c.run_id == runs.c.id)
    about_limit = tickets.alias("about_limit")
    held = exists().where(
        about_limit.c.tenant == runs.c.tenant,
        about_limit.c.run_id == runs.c.id,
        about_limit.c.kind == TicketKind.LIMIT.value,
        about_limit.c.status == TicketStatus.OPEN.value,
    )
    return await keys_of(
        connection,
        select(*_key_columns)
        .join_from(tickets, runs, mine)
        .where(
            tickets.c.status.in_(("decided", "expired")),
            tickets.c.applied_at.is_(None),
            tickets.c.updated_at < func.now() - timedelta(seconds=grace),
            runs.c.status == RunStatus.WAITING.value,
            runs.c.waiting_reason.not_in(
                (WaitingReason.AGENT_VERSION_UNAVAILABLE.value, WaitingReason.RATE_LIMIT.value)
            ),
            NOT_PAUSED,
            ~held,
        )
        .order_by(tickets.c.updated_at)
        .limit(limit),
    )


async def with_unread_input(connection: Connection, *, grace: float, limit: int) -> list[RunKey]:
    """Runs that wait for their tasks although one reported `grace` ago; for the sweeper."""
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(
            runs.c.waiting_reason == WaitingReason.BACKGROUND_TASKS.value,
            runs.c.unread_inputs > 0,
            NOT_PAUSED,
            runs.c.updated_at < func.now() - timedelta(seconds=grace),
        )
        .order_by(runs.c.updated_at)
        .limit(limit),
    )


async def resumed(connection: Connection, *, grace: float, limit: int) -> list[RunKey]:
    """Runs that still wait although their pause was removed `grace` ago; for the sweeper."""
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(
            runs.c.waiting_reason == WaitingReason.MANUAL_PAUSE.value,
            runs.c.pause_requested_at.is_(None),
            runs.c.updated_at < func.now() - timedelta(seconds=grace),
        )
        .order_by(runs.c.updated_at)
        .limit(limit),
    )


async def count_task_ended(connection: Connection, tenant: Tenant, run_id: RunId) -> None:
    """One open task less; the caller holds the run's lock and has ended the task."""
    await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id)
        .values(open_tasks=runs.c.open_tasks - 1)
    )


async def waiting_for_version(
    connection: Connection, versions: Sequence[AgentVersion], limit: int
) -> list[RunKey]:
    """Runs that wait for a version of their agent which is here now; for the sweeper."""
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(
            runs.c.waiting_reason == WaitingReason.AGENT_VERSION_UNAVAILABLE.value,
            runs.c.agent_version.in_(versions),
            NOT_PAUSED,
        )
        .order_by(runs.c.updated_at)
        .limit(limit),
    )


async def past_rate_limit(connection: Connection, *, grace: float, limit: int) -> list[RunKey]:
    """Runs that should have resumed `grace` ago, after a rate limit; for the sweeper."""
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(
            runs.c.waiting_reason == WaitingReason.RATE_LIMIT.value,
            runs.c.waiting_until < func.now() - timedelta(seconds=grace),
            NOT_PAUSED,
        )
        .order_by(runs.c.waiting_until)
        .limit(limit),
    )


_key_columns = (runs.c.tenant, runs.c.thread_id, runs.c.id, runs.c.attempt)


async def keys_of(connection: Connection, statement: Select[Any]) -> list[RunKey]:
    """The runs that a statement selects by tenant, thread_id, id and attempt."""
    rows = await connection.execute(statement)
    return [
        RunKey(Tenant(row.tenant), ThreadId(row.thread_id), RunId(row.id), row.attempt)
        for row in rows
    ]


async def page(
    connection: Connection,
    tenant: Tenant,
    wanted: RunFilter,
    *,
    before: tuple[datetime, RunId] | None,
    limit: int,
) -> Slice[RunRecord]:
    """Runs, newest first, before a place in that order. Never loads a message body."""
    conditions: list[ColumnElement[bool]] = [runs.c.tenant == tenant]
    if wanted.thread_id is not None:
        conditions.append(runs.c.thread_id == wanted.thread_id)
    if wanted.parent_run_id is not None:
        conditions.append(runs.c.parent_run_id == wanted.parent_run_id)
    if wanted.root_run_id is not None:
        conditions.append(runs.c.root_run_id == wanted.root_run_id)
    if wanted.agent_id is not None:
        conditions.append(runs.c.agent_id == wanted.agent_id)
    if wanted.status is not None:
        conditions.append(runs.c.status == wanted.status.value)
    if wanted.outcome is not None:
        conditions.append(runs.c.termination["type"].astext.in_(TYPES_OF[wanted.outcome]))
    if wanted.termination_code is not None:
        conditions.append(runs.c.termination["code"].astext == wanted.termination_code)
    if wanted.created_after is not None:
        conditions.append(runs.c.created_at > wanted.created_after)
    if wanted.created_before is not None:
        conditions.append(runs.c.created_at < wanted.created_before)
    if wanted.metadata:
        conditions.append(runs.c.metadata.contains(dict(wanted.metadata)))
    if before is not None:
        conditions.append(tuple_(runs.c.created_at, runs.c.id) < before)
    return await page_rows(
        connection,
        select(runs).where(*conditions),
        run_of,
        by=("created_at", "id"),
        descending=True,
        limit=limit,
    )


_STANDING = """
SELECT r.status, r.pause_requested_at IS NULL AND (
    r.waiting_reason IN ('manual_pause', 'rate_limit')
    OR r.waiting_reason = 'background_tasks' AND r.unread_inputs > 0
    OR r.waiting_reason <> 'agent_version_unavailable' AND EXISTS (
    SELECT FROM tickets t WHERE t.tenant = r.tenant AND t.run_id = r.id
        AND t.status IN ('decided', 'expired') AND t.applied_at IS NULL)
    AND NOT EXISTS (SELECT FROM tickets t WHERE t.tenant = r.tenant AND t.run_id = r.id
        AND t.status = 'open' AND t.kind = 'limit')) AS has_answer
FROM runs r WHERE r.tenant = $1 AND r.id = $2
"""


@dataclass(frozen=True, slots=True)
class StoredStatus:
    """Whether a run is done, at rest, or on the move: what a stream must know to end or stay open."""

    status: RunStatus
    has_answer: bool
    """A worker will continue the run: a ticket was answered, a task has reported, a pause was removed, or the
    run waits for a rate limit."""

    @property
    def is_idle(self) -> bool:
        return self.status is RunStatus.WAITING and not self.has_answer


async def status_of_run(pool: RawPool, tenant: Tenant, run_id: RunId) -> StoredStatus | None:
    row = await pool.fetchrow(_STANDING, tenant, run_id)
    return None if row is None else StoredStatus(RunStatus(row["status"]), bool(row["has_answer"]))
