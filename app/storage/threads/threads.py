"""Threads: a thread's row is the lock that orders starts, and counts its messages."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Text, bindparam, cast, or_, select, update
from sqlalchemy import delete as delete_from
from sqlalchemy.dialects.postgresql import insert

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.json_values import JsonObject
from app.domain.rules.remembered import RuleScope
from app.domain.threads.threads import Thread
from app.storage.codec import Row
from app.storage.postgres.database import Connection
from app.storage.postgres.statements import prepared
from app.storage.tables import events, rules, runs, threads


def thread_of(row: Row) -> Thread:
    return Thread(
        id=ThreadId(row["id"]),
        key=row["key"],
        title=row["title"],
        resource_id=row["resource_id"],
        parent_thread_id=row["parent_thread_id"],
        metadata=row["metadata"],
        next_message_seq=row["next_message_seq"],
        open_run_id=row["open_run_id"],
        latest_run_id=row["latest_run_id"],
        queue_length=row["queue_length"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


_BY_KEY = select(threads).where(
    threads.c.tenant == bindparam("tenant"), threads.c.id == bindparam("id")
)
_GET = prepared(_BY_KEY)
_LOCK = prepared(_BY_KEY.with_for_update(key_share=True))


async def get(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> Thread | None:
    row = (await connection.execute(_GET, {"tenant": tenant, "id": thread_id})).one_or_none()
    return None if row is None else thread_of(row)


async def lock(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> Thread | None:
    """Lock a thread until commit: the first lock of every command that starts, ends or appends."""
    row = (await connection.execute(_LOCK, {"tenant": tenant, "id": thread_id})).one_or_none()
    return None if row is None else thread_of(row)


async def state(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> JsonObject:
    """The state that a thread keeps between runs."""
    found = await connection.scalar(
        select(threads.c.state).where(threads.c.tenant == tenant, threads.c.id == thread_id)
    )
    thread_state: JsonObject = found or {}
    return thread_state


async def restore_state(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, run_id: RunId
) -> None:
    """Restore the state that a thread had before a run, if that run changed it.

    The caller holds the thread's lock.
    """
    before = (
        select(runs.c.thread_state_before)
        .where(runs.c.tenant == tenant, runs.c.id == run_id)
        .scalar_subquery()
    )
    await connection.execute(
        update(threads)
        .where(threads.c.tenant == tenant, threads.c.id == thread_id, before.is_not(None))
        .values(state=before)
    )


async def create(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    *,
    key: str | None = None,
    title: str | None = None,
    resource_id: str | None = None,
    parent_thread_id: ThreadId | None = None,
    metadata: JsonObject | None = None,
) -> bool:
    """Insert a thread; False, and nothing changed, if its id exists."""
    statement = (
        insert(threads)
        .values(
            tenant=tenant,
            id=thread_id,
            key=key,
            title=title,
            resource_id=resource_id,
            parent_thread_id=parent_thread_id,
            metadata=metadata or {},
        )
        .on_conflict_do_nothing()
    )
    return (await connection.execute(statement)).rowcount == 1


async def change(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, values: Mapping[str, Any]
) -> None:
    """Update columns of a thread that the caller has locked."""
    await connection.execute(
        update(threads).where(threads.c.tenant == tenant, threads.c.id == thread_id).values(values)
    )


async def delete(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> None:
    """Delete a thread with all its rows and rules. The caller has locked it.

    Its event head stays, so that a new thread with the same id doesn't use the same event numbers again.
    """
    of_its_runs = select(cast(runs.c.id, Text)).where(
        runs.c.tenant == tenant, runs.c.thread_id == thread_id
    )
    await connection.execute(
        delete_from(rules).where(
            rules.c.tenant == tenant,
            or_(
                (rules.c.scope == RuleScope.THREAD.value) & (rules.c.scope_id == thread_id),
                (rules.c.scope == RuleScope.RUN.value) & rules.c.scope_id.in_(of_its_runs),
            ),
        )
    )
    await connection.execute(
        delete_from(events).where(events.c.tenant == tenant, events.c.thread_id == thread_id)
    )
    await connection.execute(
        delete_from(threads).where(threads.c.tenant == tenant, threads.c.id == thread_id)
    )


async def has_children(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> bool:
    statement = (
        select(threads.c.id)
        .where(threads.c.tenant == tenant, threads.c.parent_thread_id == thread_id)
        .limit(1)
    )
    return (await connection.execute(statement)).first() is not None


async def detach_children(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> None:
    """Remove the parent of a thread's children. The caller has locked the thread."""
    await connection.execute(
        update(threads)
        .where(threads.c.tenant == tenant, threads.c.parent_thread_id == thread_id)
        .values(parent_thread_id=None)
    )


async def lock_descendants(
    connection: Connection, tenant: Tenant, thread_id: ThreadId
) -> list[Thread]:
    """Lock all threads below one that the caller has locked, each after its parent.

    Only this function locks several threads. It always goes from parent to child, so that no deadlock is
    possible.
    """
    found: list[Thread] = []
    parents = [thread_id]
    while parents:
        statement = (
            select(threads)
            .where(threads.c.tenant == tenant, threads.c.parent_thread_id.in_(parents))
            .order_by(threads.c.id)
            .with_for_update(key_share=True)
        )
        children = [thread_of(row) for row in (await connection.execute(statement))]
        found += children
        parents = [child.id for child in children]
    return found
