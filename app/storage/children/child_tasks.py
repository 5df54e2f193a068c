"""Tasks that are runs of other agents: begun by an errand, ended with their run, and told things by theirs."""

from datetime import datetime

from sqlalchemy import func, select, update

from app.domain.children.background_tasks import Task, TaskStatus
from app.domain.ids import RunId, TaskId, Tenant
from app.storage.children.background_tasks import is_task, task_of
from app.storage.postgres.database import Connection
from app.storage.tables import tasks


async def of_child(
    connection: Connection, tenant: Tenant, child: RunId, *, hold: bool = False
) -> Task | None:
    """The open task that a child run is. Held, it can't be ended before this transaction ends."""
    statement = select(tasks).where(
        tasks.c.tenant == tenant,
        tasks.c.child_run_id == child,
        tasks.c.status == TaskStatus.RUNNING.value,
    )
    if hold:
        statement = statement.with_for_update(key_share=True)
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else task_of(row)


async def mark_begun(connection: Connection, tenant: Tenant, task_id: TaskId, at: datetime) -> None:
    """The child is there; should it ever be missing, it was deleted."""
    await connection.execute(
        update(tasks)
        .where(is_task(tenant, task_id))
        .values(attempt=1, started_at=at, updated_at=at)
    )


async def take_messages(connection: Connection, tenant: Tenant, child: RunId) -> list[str]:
    """What has been sent to the child run's task and wasn't taken before; the caller passes it on."""
    mine = (
        (tasks.c.tenant == tenant)
        & (tasks.c.child_run_id == child)
        & (tasks.c.status == TaskStatus.RUNNING.value)
    )
    found = select(tasks.c.inbox, tasks.c.inbox_read).where(mine).with_for_update(key_share=True)
    row = (await connection.execute(found)).one_or_none()
    if row is None or len(row.inbox) == row.inbox_read:
        return []
    await connection.execute(
        update(tasks).where(mine).values(inbox_read=len(row.inbox), updated_at=func.now())
    )
    return [message["text"] for message in row.inbox[row.inbox_read :]]
