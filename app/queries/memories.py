"""Reads of memories and of the audit of their deletions."""

from collections.abc import AsyncGenerator, Sequence

from app.context import ServiceContext
from app.domain.memories.access import memory_not_found, require_owner
from app.domain.memories.checks import checked_key
from app.domain.memories.deletions import MemoryDeletion
from app.domain.memories.memories import MemoryEntry, MemoryFilter, MemoryOwner
from app.domain.principals import Principal
from app.domain.slices import Order, PageRequest, Slice
from app.domain.structs import replace
from app.storage.memories import deletions, memories

MEMORIES_PER_PAGE = 200
"""Of an export."""


async def list_memories(
    ctx: ServiceContext,
    principal: Principal,
    owner: MemoryOwner | None,
    wanted: MemoryFilter,
    requested: PageRequest,
) -> Slice[MemoryEntry]:
    """A page of an owner's memories, or of all owners'."""
    require_owner(principal, owner)
    if owner is not None:
        wanted = replace(wanted, scope=owner.scope, subject=owner.subject)
    async with ctx.database.reading() as connection:
        return await memories.page(
            connection, principal.tenant, wanted, requested, ctx.memory_language
        )


async def read_memory(
    ctx: ServiceContext, principal: Principal, owner: MemoryOwner, key: str
) -> MemoryEntry:
    require_owner(principal, owner)
    async with ctx.database.reading_by_key() as connection:
        found = await memories.get(connection, principal.tenant, owner, checked_key(key))
    if found is None:
        raise memory_not_found()
    return found


async def export_memories(
    ctx: ServiceContext, principal: Principal, owner: MemoryOwner | None, wanted: MemoryFilter
) -> AsyncGenerator[Sequence[MemoryEntry]]:
    """All memories that a list would have, oldest first. No connection is held between pages."""
    requested = PageRequest(order=Order.ASC, limit=MEMORIES_PER_PAGE)
    while True:
        found = await list_memories(ctx, principal, owner, wanted, requested)
        if found:
            yield found
        if not found.has_more:
            return
        requested = replace(requested, after=(found[-1].created_at, found[-1].id))


async def list_deletions(
    ctx: ServiceContext, principal: Principal, owner: MemoryOwner | None, requested: PageRequest
) -> Slice[MemoryDeletion]:
    """A page of the audit of deletions."""
    require_owner(principal, owner)
    async with ctx.database.reading() as connection:
        return await deletions.page(connection, principal.tenant, owner, requested)
