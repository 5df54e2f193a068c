"""Routes of MCP servers, and of the catalogue of tools."""

from fastapi import APIRouter

from app.api.lists import PagedAscending, numbered_page
from app.api.mcp.schemas import (
    AcceptToolsIn,
    CatalogToolOut,
    McpServerDetailsOut,
    McpServerOut,
    server_details,
    server_out,
)
from app.api.schemas.common import Page
from app.commands import mcp_servers as commands
from app.http import cursors
from app.http.access import AuthorizedRoute, MayAdminister, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.queries import mcp_servers as queries

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1", tags=["mcp-servers"])


@router.get("/mcp-servers")
async def list_mcp_servers(
    ctx: ContextDep, principal: MayRead, paging: PagedAscending
) -> Page[McpServerOut]:
    """List the MCP servers, in the order of the agents file."""
    query = paging.of(list="mcp servers")
    found = numbered_page(await queries.list_servers(ctx, principal), query.by_number())
    return Page[McpServerOut].of(
        found,
        show=lambda each: server_out(each[1]),
        cursor=lambda each: cursors.encode_seq(query.name, each[0]),
    )


@router.get("/mcp-servers/{server_id}", responses=error_responses("mcp_server_not_found"))
async def get_mcp_server(
    server_id: str, ctx: ContextDep, principal: MayRead
) -> McpServerDetailsOut:
    """Get an MCP server with its tools, and what has changed since they were accepted."""
    return server_details(await queries.get_server(ctx, principal, server_id))


@router.post(
    "/mcp-servers/{server_id}/restart",
    status_code=202,
    responses=error_responses("mcp_server_not_found"),
)
async def restart_mcp_server(
    server_id: str, ctx: ContextDep, principal: MayAdminister
) -> McpServerDetailsOut:
    """Restart an MCP server in all processes, within seconds. Its open calls are interrupted."""
    await commands.restart(ctx, principal, server_id)
    return server_details(await queries.get_server(ctx, principal, server_id))


@router.post(
    "/mcp-servers/{server_id}/tools/accept",
    responses=error_responses("mcp_server_not_found", "mcp_tool_changed"),
)
async def accept_mcp_tools(
    server_id: str, body: AcceptToolsIn, ctx: ContextDep, principal: MayAdminister
) -> McpServerDetailsOut:
    """Accept what an MCP server says about its tools. Processes offer them within seconds."""
    await commands.accept_tools(ctx, principal, server_id, body.digests)
    return server_details(await queries.get_server(ctx, principal, server_id))


@router.get("/tools")
async def list_tools(
    ctx: ContextDep, principal: MayRead, paging: PagedAscending
) -> Page[CatalogToolOut]:
    """List the tools that agents may name: functions, and those of MCP servers that were listed."""
    query = paging.of(list="tools")
    found = numbered_page(queries.list_tools(ctx, principal), query.by_number())
    return Page[CatalogToolOut].of(
        found,
        show=lambda each: CatalogToolOut.model_validate(each[1]),
        cursor=lambda each: cursors.encode_seq(query.name, each[0]),
    )
