"""Threads: their row is the lock that orders starts, and the counter of their log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Text, cast, or_, select, text, tuple_, update
from sqlalchemy import delete as delete_from
from sqlalchemy.dialects.postgresql import insert

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.json_values import JsonObject
from app.domain.rules.remembered import RuleScope
from app.domain.slices import Slice
from app.domain.threads.threads import Thread
from app.storage.codec import Row, parsed
from app.storage.page_rows import page_rows
from app.storage.postgres.database import Connection
from app.storage.tables import events, rules, runs, threads


def _thread_of(row: Row) -> Thread:
    return Thread(
        id=ThreadId(row["id"]),
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


async def get(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> Thread | None:
    statement = select(threads).where(threads.c.tenant == tenant, threads.c.id == thread_id)
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else _thread_of(row)


async def lock(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> Thread | None:
    """The first lock of every command that starts, ends or appends: held to the commit."""
    statement = (
        select(threads)
        .where(threads.c.tenant == tenant, threads.c.id == thread_id)
        .with_for_update(key_share=True)
    )
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else _thread_of(row)


async def state(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> JsonObject:
    """What the thread remembers from run to run."""
    found = await connection.scalar(
        select(threads.c.state).where(threads.c.tenant == tenant, threads.c.id == thread_id)
    )
    remembered: JsonObject = parsed(found) or {}
    return remembered


async def restore_state(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, run_id: RunId
) -> None:
    """Let a thread remember what it did before a run, if that has changed it; the caller has locked
    the thread."""
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
    title: str | None = None,
    resource_id: str | None = None,
    parent_thread_id: ThreadId | None = None,
    metadata: JsonObject | None = None,
) -> bool:
    """Make a thread; False, and nothing changed, when its id is taken."""
    statement = (
        insert(threads)
        .values(
            tenant=tenant,
            id=thread_id,
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
    """Set some columns of a thread that the caller has locked."""
    await connection.execute(
        update(threads).where(threads.c.tenant == tenant, threads.c.id == thread_id).values(values)
    )


async def delete(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> None:
    """Remove a thread with all that belongs to it; the caller has locked it.

    Its event head stays: under the same id a new thread must not give the same numbers again, nor be
    subject to the rules of this one.
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
    """Leave a thread's children without a parent; the caller has locked the thread."""
    await connection.execute(
        update(threads)
        .where(threads.c.tenant == tenant, threads.c.parent_thread_id == thread_id)
        .values(parent_thread_id=None)
    )


async def lock_descendants(
    connection: Connection, tenant: Tenant, thread_id: ThreadId
) -> list[Thread]:
    """All threads below one that the caller has locked, each after its parent.

    The one place that locks several threads: always downwards, and nobody goes up, so that no two can
    wait for each other.
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
        children = [_thread_of(row) for row in (await connection.execute(statement)).mappings()]
        found += children
        parents = [child.id for child in children]
    return found


async def page(
    connection: Connection,
    tenant: Tenant,
    *,
    resource_id: str | None,
    parent_thread_id: ThreadId | None,
    metadata: JsonObject,
    before: tuple[datetime, ThreadId] | None,
    limit: int,
) -> Slice[Thread]:
    """Threads, newest first, before a place in that order."""
    statement = select(threads).where(threads.c.tenant == tenant)
    if resource_id is not None:
        statement = statement.where(threads.c.resource_id == resource_id)
    if parent_thread_id is not None:
        statement = statement.where(threads.c.parent_thread_id == parent_thread_id)
    if metadata:
        # Said twice, so that the index of those that have any counts.
        statement = statement.where(
            threads.c.metadata.contains(dict(metadata)), text("threads.metadata <> '{}'")
        )
    if before is not None:
        statement = statement.where(tuple_(threads.c.created_at, threads.c.id) < before)
    return await page_rows(
        connection, statement, _thread_of, by=("created_at", "id"), descending=True, limit=limit
    )
