"""Background tasks that are executed as a child run."""

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
    """The open task that a child run executes. With `hold`, locks its row until commit."""
    statement = select(tasks).where(
        tasks.c.tenant == tenant,
        tasks.c.child_run_id == child,
        tasks.c.status == TaskStatus.RUNNING.value,
    )
    if hold:
        statement = statement.with_for_update(key_share=True)
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else task_of(row)


async def mark_begun(connection: Connection, tenant: Tenant, task_id: TaskId, at: datetime) -> None:
    """Record that the child run exists. If it is missing later, it was deleted."""
    await connection.execute(
        update(tasks)
        .where(is_task(tenant, task_id))
        .values(attempt=1, started_at=at, updated_at=at)
    )


async def take_messages(connection: Connection, tenant: Tenant, child: RunId) -> list[str]:
    """The unread messages of a child run's task, marked as read. The caller forwards them."""
    is_open_task = (
        (tasks.c.tenant == tenant)
        & (tasks.c.child_run_id == child)
        & (tasks.c.status == TaskStatus.RUNNING.value)
    )
    statement = (
        select(tasks.c.inbox, tasks.c.inbox_read)
        .where(is_open_task)
        .with_for_update(key_share=True)
    )
    row = (await connection.execute(statement)).one_or_none()
    if row is None or len(row.inbox) == row.inbox_read:
        return []
    await connection.execute(
        update(tasks).where(is_open_task).values(inbox_read=len(row.inbox), updated_at=func.now())
    )
    return [message["text"] for message in row.inbox[row.inbox_read :]]
