"""Delete memories: one, or all of an owner. The audit keeps that it was done, and not what was deleted."""

from app.context import ServiceContext
from app.domain.memories.access import memory_not_found, require_owner
from app.domain.memories.checks import checked_key
from app.domain.memories.memories import MemoryOwner
from app.domain.principals import Principal
from app.storage.memories import deletions, memories


async def delete_memory(
    ctx: ServiceContext, principal: Principal, owner: MemoryOwner, key: str
) -> None:
    """Delete one memory."""
    require_owner(principal, owner)
    tenant = principal.tenant
    async with ctx.database.transaction() as connection:
        await memories.lock_owner(connection, tenant, owner)
        if not await memories.remove(connection, tenant, owner, checked_key(key)):
            raise memory_not_found()
        await deletions.add(connection, tenant, owner, 1, deleted_by=principal.subject)


async def delete_all_memories(ctx: ServiceContext, principal: Principal, owner: MemoryOwner) -> int:
    """Delete all memories of an owner. Returns their number."""
    require_owner(principal, owner)
    tenant = principal.tenant
    async with ctx.database.transaction() as connection:
        await memories.lock_owner(connection, tenant, owner)
        count = await memories.remove_all(connection, tenant, owner)
        await deletions.add(connection, tenant, owner, count, deleted_by=principal.subject)
        return count
