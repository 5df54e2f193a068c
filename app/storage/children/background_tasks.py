"""Background tasks: created by a checkpoint, claimed like runs, ended once.

A transaction that creates or ends a task holds the lock of its run, whose row counts open tasks.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, exists, func, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.children.background_tasks import (
    NewTask,
    Task,
    TaskFilter,
    TaskKey,
    TaskOutcome,
    TaskStatus,
)
from app.domain.children.child_runs import work_from_json, work_to_json
from app.domain.ids import AgentId, AgentVersion, CallId, RunId, TaskId, Tenant, ThreadId, WorkerId
from app.domain.json_values import storable
from app.domain.slices import PageRequest, Slice
from app.domain.tools.tool_calls import Effect
from app.storage.codec import Row
from app.storage.page_rows import page_of
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql
from app.storage.tables import tasks, workers


def task_of(row: Row) -> Task:
    return Task(
        id=TaskId(row["id"]),
        run_id=RunId(row["run_id"]),
        thread_id=ThreadId(row["thread_id"]),
        agent_id=AgentId(row["agent_id"]),
        agent_version=AgentVersion(row["agent_version"]),
        call_id=CallId(row["call_id"]),
        tool_name=row["tool_name"],
        arguments=row["arguments"],
        effect=Effect(row["effect"]),
        idempotency_key=row["idempotency_key"],
        status=TaskStatus(row["status"]),
        # Rows with a result are only read through the engine, which has decoded it.
        result=row["result"],
        error=row["error"],
        unread_messages=len(row["inbox"]) - row["inbox_read"],
        attempt=row["attempt"],
        losses=row["losses"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        reported_at=row["reported_at"],
        updated_at=row["updated_at"],
        child=None if row["child"] is None else work_from_json(row["child"]),
    )


def is_task(tenant: Tenant, task_id: TaskId) -> ColumnElement[bool]:
    return (tasks.c.tenant == tenant) & (tasks.c.id == task_id)


# --- for a run ------------------------------------------------------------------------------------


async def begin(
    connection: Connection,
    tenant: Tenant,
    run_id: RunId,
    thread_id: ThreadId,
    begun: Sequence[NewTask],
    at: datetime,
) -> None:
    """Insert the new tasks of a run. A task without a child run can be claimed by any worker."""
    await connection.execute_many(
        insert(tasks),
        [
            {
                "tenant": tenant,
                "id": task.id,
                "run_id": run_id,
                "thread_id": thread_id,
                "agent_id": task.agent_id,
                "agent_version": task.agent_version,
                "call_id": task.call_id,
                "tool_name": task.tool_name,
                "arguments": storable(task.arguments),
                "effect": task.effect.value,
                "idempotency_key": task.idempotency_key,
                "created_at": at,
                "updated_at": at,
                "child": None if task.child is None else work_to_json(task.child),
                "child_run_id": None if task.child is None else task.child.run_id,
            }
            for task in begun
        ],
    )


async def cancel_all(
    connection: Connection,
    tenant: Tenant,
    run_id: RunId,
    at: datetime,
    *,
    only: Sequence[TaskId] | None = None,
) -> list[RunId]:
    """Cancel a run's open tasks, or only those in `only`. Returns the child runs of these tasks.

    A worker notices at its next write that its task is cancelled. The caller cancels the child runs.
    """
    if only is not None and not only:
        return []
    open_ones = (
        (tasks.c.tenant == tenant)
        & (tasks.c.run_id == run_id)
        & (tasks.c.status == TaskStatus.RUNNING.value)
    )
    statement = (
        update(tasks)
        .where(open_ones if only is None else open_ones & tasks.c.id.in_(only))
        .values(status=TaskStatus.CANCELLED.value, owner=None, finished_at=at, updated_at=at)
        .returning(tasks.c.child_run_id)
    )
    ended = await connection.scalars(statement)
    return [RunId(child) for child in ended if child is not None]


async def end(
    connection: Connection,
    tenant: Tenant,
    task_id: TaskId,
    outcome: TaskOutcome,
    at: datetime,
    *,
    attempt: int | None,
    is_reported: bool,
) -> Task | None:
    """End an open task. None, and nothing written, if it has ended or has another attempt.

    With `attempt=None` the task is ended regardless of its owner.
    """
    is_ours = is_task(tenant, task_id) & (tasks.c.status == TaskStatus.RUNNING.value)
    if attempt is not None:
        is_ours &= tasks.c.attempt == attempt
    statement = (
        update(tasks)
        .where(is_ours)
        .values(
            status=outcome.status.value,
            result=storable(outcome.result),
            error=storable(outcome.error),
            owner=None,
            finished_at=at,
            reported_at=at if is_reported else None,
            updated_at=at,
        )
        .returning(tasks)
    )
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else task_of(row)


async def get(connection: Connection, tenant: Tenant, task_id: TaskId) -> Task | None:
    row = (await connection.execute(select(tasks).where(is_task(tenant, task_id)))).first()
    return None if row is None else task_of(row)


async def page(
    connection: Connection,
    tenant: Tenant,
    run_id: RunId,
    wanted: TaskFilter,
    requested: PageRequest,
) -> Slice[Task]:
    """A run's tasks by creation."""
    words = [status.value for status in wanted.statuses]
    statement = select(tasks).where(
        tasks.c.tenant == tenant, tasks.c.run_id == run_id, tasks.c.status.in_(words)
    )
    return await page_of(connection, statement, task_of, requested)


# --- for a worker ---------------------------------------------------------------------------------

_CLAIM = NamedSql("""
WITH locked AS (
    SELECT t.id, t.owner AS lost_owner FROM tasks t
    WHERE t.tenant = :tenant AND t.id = :id AND t.status = 'running' AND t.child_run_id IS NULL
        AND (t.owner IS NULL OR NOT EXISTS (
            SELECT FROM workers w WHERE w.id = t.owner AND w.heartbeat_at > now() - :timeout::interval))
        AND NOT t.losses + (t.owner IS NOT NULL)::int = ANY(:unless_lost::int[])
    FOR NO KEY UPDATE OF t
)
UPDATE tasks t SET attempt = t.attempt + 1, owner = :owner,
    losses = t.losses + (locked.lost_owner IS NOT NULL)::int,
    started_at = coalesce(t.started_at, now()), updated_at = now()
FROM locked WHERE t.tenant = :tenant AND t.id = locked.id
RETURNING t.*, locked.lost_owner
""")


class ClaimedTask(Struct, frozen=True):
    """A task that this worker owns under a new attempt. `taken_over`: its last owner died."""

    tenant: Tenant
    task: Task
    taken_over: bool

    @property
    def was_begun(self) -> bool:
        """Another worker executed it before, and died or released it."""
        return self.taken_over or self.task.attempt > 1

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.tenant, self.task.id, self.task.attempt)


async def claim(
    pool: RawPool,
    key: TaskKey,
    owner: WorkerId,
    timeout: float,
    *,
    unless_lost: Collection[int] = (),
) -> ClaimedTask | None:
    """Claim an open task whose owner is dead or missing. At most one worker gets it.

    None: the task isn't free, or its losses would be one of `unless_lost`.
    """
    row = await pool.fetchrow(
        *_CLAIM(
            tenant=key.tenant,
            id=key.task_id,
            owner=owner,
            timeout=timedelta(seconds=timeout),
            unless_lost=list(unless_lost),
        )
    )
    if row is None:
        return None
    return ClaimedTask(key.tenant, task_of(row), row["lost_owner"] is not None)


async def owned(pool: RawPool, owner: WorkerId) -> set[TaskKey]:
    """The tasks that this process owns, according to the database."""
    rows = await pool.fetch(
        "SELECT tenant, id, attempt FROM tasks WHERE owner = $1 AND status = 'running'", owner
    )
    return {TaskKey(Tenant(row["tenant"]), TaskId(row["id"]), row["attempt"]) for row in rows}


async def is_owned(connection: Connection, key: TaskKey) -> bool:
    """Whether the task is open under this attempt. The caller holds the run's lock, so it stays so."""
    statement = select(tasks.c.id).where(
        is_task(key.tenant, key.task_id),
        tasks.c.status == TaskStatus.RUNNING.value,
        tasks.c.attempt == key.attempt,
    )
    return (await connection.execute(statement)).first() is not None


async def release(connection: Connection, key: TaskKey) -> bool:
    """Give up ownership, so that another worker may claim at once; False if it was lost or ended."""
    result = await connection.execute(
        update(tasks)
        .where(
            is_task(key.tenant, key.task_id),
            tasks.c.status == TaskStatus.RUNNING.value,
            tasks.c.attempt == key.attempt,
        )
        .values(owner=None, updated_at=func.now())
    )
    return result.rowcount == 1


async def without_owner(
    connection: Connection, *, heartbeat_timeout: float, grace: float, limit: int
) -> list[TaskKey]:
    """Open tasks of all tenants without a live owner; for the sweeper.

    A task without owner that changed within `grace` is left out: its delivery is still queued.
    """
    alive = exists().where(
        workers.c.id == tasks.c.owner,
        workers.c.heartbeat_at > func.now() - timedelta(seconds=heartbeat_timeout),
    )
    is_past_grace = tasks.c.updated_at < func.now() - timedelta(seconds=grace)
    rows = await connection.execute(
        select(tasks.c.tenant, tasks.c.id, tasks.c.attempt)
        .where(
            tasks.c.status == TaskStatus.RUNNING.value,
            tasks.c.child_run_id.is_(None),
            or_(tasks.c.owner.is_(None) & is_past_grace, tasks.c.owner.is_not(None) & ~alive),
        )
        .order_by(tasks.c.updated_at)
        .limit(limit)
    )
    return [TaskKey(Tenant(row.tenant), TaskId(row.id), row.attempt) for row in rows]


# --- its inbox ------------------------------------------------------------------------------------


async def send_message(
    connection: Connection, tenant: Tenant, task_id: TaskId, text: str, key: str
) -> None:
    """Append a message to the inbox of an open task, once per key."""
    message: list[dict[str, Any]] = [{"key": key, "text": storable(text)}]
    is_known = tasks.c.inbox.contains([{"key": key}])
    await connection.execute(
        update(tasks)
        .where(is_task(tenant, task_id), tasks.c.status == TaskStatus.RUNNING.value, ~is_known)
        .values(
            inbox=tasks.c.inbox.op("||", return_type=JSONB)(literal(message, JSONB)),
            updated_at=func.now(),
        )
    )


_READ = NamedSql("""
WITH locked AS (
    SELECT tenant, id, inbox, inbox_read FROM tasks
    WHERE tenant = :tenant AND id = :id AND attempt = :attempt AND status = 'running' FOR NO KEY UPDATE
), marked AS (
    UPDATE tasks t SET inbox_read = jsonb_array_length(l.inbox) FROM locked l
    WHERE t.tenant = l.tenant AND t.id = l.id AND l.inbox_read < jsonb_array_length(l.inbox)
)
SELECT m.message ->> 'text' AS text FROM locked,
    jsonb_array_elements(locked.inbox) WITH ORDINALITY AS m(message, position)
WHERE m.position > :after ORDER BY m.position
""")


async def read_messages(pool: RawPool, key: TaskKey, after: int) -> list[str]:
    """The messages behind the first `after`; all are marked as read.

    The caller counts `after` itself, so a task that is executed again reads all messages again.
    """
    rows = await pool.fetch(
        *_READ(tenant=key.tenant, id=key.task_id, attempt=key.attempt, after=after)
    )
    return [row["text"] for row in rows]
