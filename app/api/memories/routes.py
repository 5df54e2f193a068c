"""Routes of memories: list, get, put and delete, and the audit of deletions."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.lists import Listed
from app.api.memories.owners import AnyOwnersQuery, NamedOwnerQuery, OwnerQuery
from app.api.memories.schemas import (
    MemoriesDeletedOut,
    MemoryDeletionOut,
    MemoryIn,
    MemoryKey,
    MemoryOut,
)
from app.api.schemas.common import Page, Str
from app.commands.memories.delete import delete_all_memories
from app.commands.memories.delete import delete_memory as delete_one
from app.commands.memories.put import put_memory
from app.domain.ids import AgentId
from app.domain.memories.memories import MemoryFilter
from app.http import cursors
from app.http.access import AuthorizedRoute, MayUseMemories
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.queries import memories

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1", tags=["memories"])

SearchQuery = Annotated[
    Str | None,
    Query(
        alias="q",
        min_length=1,
        max_length=500,
        description='Only memories with these words. `"…"` means a phrase, `or` and `-` work, too.',
    ),
]
KeyFilter = Annotated[
    Str | None, Query(max_length=100, description="Only the memories under this key.")
]
AgentFilter = Annotated[
    Str | None, Query(max_length=200, description="Only memories that this agent saved.")
]


@router.get("/memories")
async def list_memories(
    ctx: ContextDep,
    principal: MayUseMemories,
    owners: AnyOwnersQuery,
    paging: Listed,
    search: SearchQuery = None,
    key: KeyFilter = None,
    agent_id: AgentFilter = None,
) -> Page[MemoryOut]:
    """List memories, by default the caller's own, the newest first."""
    query = paging.of(
        list="memories",
        scope=owners.scope,
        subject=owners.subject,
        q=search,
        key=key,
        agent=agent_id,
    )
    found = await memories.list_memories(
        ctx,
        principal,
        owners.of(principal),
        memory_filter(search, key, agent_id),
        query.by_creation(),
    )
    return Page[MemoryOut].of(
        found,
        show=MemoryOut.of,
        cursor=lambda entry: cursors.encode(query.name, entry.created_at, entry.id),
    )


@router.delete("/memories")
async def delete_memories(
    ctx: ContextDep, principal: MayUseMemories, owner: NamedOwnerQuery
) -> MemoriesDeletedOut:
    """Delete all memories of an owner. The audit keeps how many there were, and by whom they were deleted."""
    count = await delete_all_memories(ctx, principal, owner.of(principal))
    return MemoriesDeletedOut(deleted=count)


@router.get("/memories/{memory_key}", responses=error_responses("memory_not_found"))
async def get_memory(
    memory_key: MemoryKey, ctx: ContextDep, principal: MayUseMemories, owner: OwnerQuery
) -> MemoryOut:
    """Get a memory by its key."""
    return MemoryOut.of(await memories.read_memory(ctx, principal, owner.of(principal), memory_key))


@router.put(
    "/memories/{memory_key}",
    responses=error_responses("memory_too_large", "memory_full", "memory_has_secret"),
)
async def save_memory(
    memory_key: MemoryKey,
    body: MemoryIn,
    ctx: ContextDep,
    principal: MayUseMemories,
    owner: OwnerQuery,
) -> MemoryOut:
    """Save a value under a key, in place of the value that is there."""
    return MemoryOut.of(
        await put_memory(ctx, principal, owner.of(principal), memory_key, body.value)
    )


@router.delete(
    "/memories/{memory_key}", status_code=204, responses=error_responses("memory_not_found")
)
async def delete_memory(
    memory_key: MemoryKey, ctx: ContextDep, principal: MayUseMemories, owner: OwnerQuery
) -> None:
    """Delete a memory. Runs that start afterwards don't know it."""
    await delete_one(ctx, principal, owner.of(principal), memory_key)


@router.get("/memory-deletions")
async def list_memory_deletions(
    ctx: ContextDep, principal: MayUseMemories, owners: AnyOwnersQuery, paging: Listed
) -> Page[MemoryDeletionOut]:
    """List the deletions of memories, the newest first. Keys and values are gone."""
    query = paging.of(list="memory-deletions", scope=owners.scope, subject=owners.subject)
    found = await memories.list_deletions(ctx, principal, owners.of(principal), query.by_creation())
    return Page[MemoryDeletionOut].of(
        found,
        show=MemoryDeletionOut.of,
        cursor=lambda deletion: cursors.encode(query.name, deletion.created_at, deletion.id),
    )


def memory_filter(search: str | None, key: str | None, agent_id: str | None) -> MemoryFilter:
    return MemoryFilter(
        query=search, key=key, agent_id=None if agent_id is None else AgentId(agent_id)
    )
