"""The audit of deleted memories: whose, how many, when and by whom. It has no key and no value."""

from sqlalchemy import insert, select

from app.clock import new_id
from app.domain.ids import RunId, Tenant
from app.domain.memories.deletions import MemoryDeletion
from app.domain.memories.memories import MemoryOwner, MemoryScope
from app.domain.slices import PageRequest, Slice
from app.storage.codec import Row
from app.storage.page_rows import page_of
from app.storage.postgres.database import Connection
from app.storage.tables import memory_deletions


def _deletion_of(row: Row) -> MemoryDeletion:
    return MemoryDeletion(
        id=row["id"],
        owner=MemoryOwner(MemoryScope(row["scope"]), row["subject"]),
        count=row["count"],
        deleted_by=row["deleted_by"],
        run_id=None if row["run_id"] is None else RunId(row["run_id"]),
        created_at=row["created_at"],
    )


async def add(
    connection: Connection,
    tenant: Tenant,
    owner: MemoryOwner,
    count: int,
    *,
    deleted_by: str,
    run_id: RunId | None = None,
) -> None:
    await connection.execute(
        insert(memory_deletions).values(
            tenant=tenant,
            id=new_id(),
            scope=owner.scope.value,
            subject=owner.subject,
            count=count,
            deleted_by=deleted_by,
            run_id=run_id,
        )
    )


async def page(
    connection: Connection, tenant: Tenant, owner: MemoryOwner | None, requested: PageRequest
) -> Slice[MemoryDeletion]:
    """A page of the deletions of an owner's memories, or of all of the tenant."""
    statement = select(memory_deletions).where(memory_deletions.c.tenant == tenant)
    if owner is not None:
        statement = statement.where(
            memory_deletions.c.scope == owner.scope.value,
            memory_deletions.c.subject == owner.subject,
        )
    return await page_of(connection, statement, _deletion_of, requested)
