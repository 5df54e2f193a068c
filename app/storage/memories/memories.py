"""The rows of memories. Writes of one owner follow each other: `lock_owner` comes before them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from app.clock import new_id
from app.domain.ids import AgentId, RunId, Tenant
from app.domain.json_values import canonical
from app.domain.memories.checks import size_of
from app.domain.memories.memories import (
    MemoryEntry,
    MemoryFilter,
    MemoryOwner,
    MemoryScope,
    NewMemory,
)
from app.domain.slices import PageRequest, Slice
from app.storage.codec import Row
from app.storage.memories.search import matches, words_of
from app.storage.page_rows import page_of
from app.storage.postgres.database import Connection
from app.storage.tables import memories

_SHOWN = tuple(column for column in memories.c if column.name not in ("tenant", "words"))


def entry_of(row: Row) -> MemoryEntry:
    return MemoryEntry(
        id=row["id"],
        owner=MemoryOwner(MemoryScope(row["scope"]), row["subject"]),
        key=row["key"],
        value=row["value"],
        size=row["size"],
        agent_id=None if row["agent_id"] is None else AgentId(row["agent_id"]),
        run_id=None if row["run_id"] is None else RunId(row["run_id"]),
        saved_by=row["saved_by"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def of_owner(tenant: Tenant, owner: MemoryOwner) -> ColumnElement[bool]:
    """The condition that a memory belongs to this owner."""
    return (
        (memories.c.tenant == tenant)
        & (memories.c.scope == owner.scope.value)
        & (memories.c.subject == owner.subject)
    )


def shown(*conditions: ColumnElement[bool]) -> Select[Any]:
    """The columns of an entry, of the memories that meet all conditions."""
    return select(*_SHOWN).where(*conditions)


async def lock_owner(connection: Connection, tenant: Tenant, owner: MemoryOwner) -> None:
    """Lock the owner's memories until commit. It is the last lock that a transaction takes."""
    name = canonical(["memories", tenant, owner.scope, owner.subject])
    await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


async def get(
    connection: Connection, tenant: Tenant, owner: MemoryOwner, key: str
) -> MemoryEntry | None:
    statement = shown(of_owner(tenant, owner), memories.c.key == key)
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else entry_of(row)


async def used_by_others(
    connection: Connection, tenant: Tenant, owner: MemoryOwner, key: str
) -> tuple[int, int]:
    """The number and the bytes of the owner's memories under all other keys."""
    statement = select(
        func.count().label("number"), func.coalesce(func.sum(memories.c.size), 0).label("bytes")
    ).where(of_owner(tenant, owner), memories.c.key != key)
    row = (await connection.execute(statement)).one()
    return row.number, int(row.bytes)


async def put(
    connection: Connection, tenant: Tenant, owner: MemoryOwner, new: NewMemory, language: str
) -> MemoryEntry:
    """Insert the memory, or replace the value under its key."""
    changed = {
        "value": new.value,
        "size": size_of(new.key, new.value),
        "words": words_of(new.key, new.value, language),
        "agent_id": new.agent_id,
        "run_id": new.run_id,
        "saved_by": new.saved_by,
        "updated_at": func.now(),
    }
    statement = insert(memories).values(
        tenant=tenant,
        id=new_id(),
        scope=owner.scope.value,
        subject=owner.subject,
        key=new.key,
        **changed,
    )
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant", "scope", "subject", "key"], set_=changed
        )
    )
    found = await get(connection, tenant, owner, new.key)
    assert found is not None
    return found


async def newest(
    connection: Connection, tenant: Tenant, owner: MemoryOwner, limit: int
) -> Sequence[MemoryEntry]:
    """The owner's memories that were changed last, the newest first."""
    statement = (
        shown(of_owner(tenant, owner))
        .order_by(memories.c.updated_at.desc(), memories.c.id.desc())
        .limit(limit)
    )
    return [entry_of(row) for row in await connection.execute(statement)]


async def page(
    connection: Connection,
    tenant: Tenant,
    wanted: MemoryFilter,
    requested: PageRequest,
    language: str,
) -> Slice[MemoryEntry]:
    """A page of the tenant's memories that meet a filter."""
    statement = shown(memories.c.tenant == tenant)
    for column, value in (
        (memories.c.scope, wanted.scope),
        (memories.c.subject, wanted.subject),
        (memories.c.key, wanted.key),
        (memories.c.agent_id, wanted.agent_id),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if wanted.query is not None:
        statement = statement.where(matches(wanted.query, language))
    return await page_of(connection, statement, entry_of, requested)


async def remove(connection: Connection, tenant: Tenant, owner: MemoryOwner, key: str) -> bool:
    """Delete a memory. False if there is none under the key."""
    statement = delete(memories).where(of_owner(tenant, owner), memories.c.key == key)
    return (await connection.execute(statement)).rowcount > 0


async def remove_all(connection: Connection, tenant: Tenant, owner: MemoryOwner) -> int:
    """Delete all memories of an owner. Returns their number."""
    return (await connection.execute(delete(memories).where(of_owner(tenant, owner)))).rowcount


async def delete_old(connection: Connection, older_than: float, limit: int) -> int:
    """Delete memories of all tenants that weren't changed for so long, oldest first."""
    key = (memories.c.tenant, memories.c.id)
    is_old = memories.c.updated_at < func.now() - timedelta(seconds=older_than)
    old = (
        select(*key)
        .where(is_old)
        .order_by(memories.c.updated_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    statement = delete(memories).where(tuple_(*key).in_(old))
    return (await connection.execute(statement)).rowcount
