"""The route that exports memories, a JSON object per line."""

from collections.abc import AsyncGenerator

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from app.api.lists import LINES_OF_JSON, exported
from app.api.memories.owners import AnyOwnersQuery
from app.api.memories.routes import AgentFilter, KeyFilter, SearchQuery, memory_filter
from app.api.memories.schemas import MemoryOut
from app.context import ServiceContext
from app.domain.memories.memories import MemoryFilter, MemoryOwner
from app.domain.principals import Principal
from app.http.access import AuthorizedRoute, MayUseMemories
from app.http.deps import ContextDep
from app.queries import memories

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1", tags=["memories"])


@router.get(
    "/memory-export",
    response_class=StreamingResponse,
    responses={
        200: {"content": {LINES_OF_JSON: {}}, "description": "A memory per line, as in the list"}
    },
)
async def export_memories(
    ctx: ContextDep,
    principal: MayUseMemories,
    owners: AnyOwnersQuery,
    search: SearchQuery = None,
    key: KeyFilter = None,
    agent_id: AgentFilter = None,
) -> StreamingResponse:
    """Export memories, by default the caller's own: a JSON object per line, the oldest first."""
    wanted = memory_filter(search, key, agent_id)
    return await exported(_lines(ctx, principal, owners.of(principal), wanted))


async def _lines(
    ctx: ServiceContext, principal: Principal, owner: MemoryOwner | None, wanted: MemoryFilter
) -> AsyncGenerator[str]:
    async for page in memories.export_memories(ctx, principal, owner, wanted):
        yield "".join(f"{MemoryOut.of(entry).model_dump_json()}\n" for entry in page)
