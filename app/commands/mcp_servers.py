"""Restart an MCP server, and accept what it says about its tools."""

from collections.abc import Sequence

import structlog

from app.context import ServiceContext
from app.domain.errors import Conflict
from app.domain.principals import Principal, Scope
from app.queries.mcp_servers import require_server
from app.storage import mcp_tools

log = structlog.get_logger(__name__)


async def restart(ctx: ServiceContext, principal: Principal, name: str) -> None:
    """Let every process close its connections to the server, and forget failed starts."""
    principal.require(Scope.ADMIN)
    require_server(ctx, name)
    async with ctx.database.transaction() as connection:
        await mcp_tools.request_restart(connection, name)
    log.info("mcp_restart_requested", server=name, subject=principal.subject)


async def accept_tools(
    ctx: ServiceContext, principal: Principal, name: str, digests: Sequence[str]
) -> None:
    """Accept the descriptions with these digests. One that has changed meanwhile is refused, with all others."""
    principal.require(Scope.ADMIN)
    require_server(ctx, name)
    async with ctx.database.transaction() as connection:
        accepted = await mcp_tools.accept(connection, name, digests, principal.subject)
        if len(accepted) < len(set(digests)):
            raise Conflict(
                "mcp_tool_changed",
                f"The MCP server {name!r} lists no tool with one of these digests any more. Read the"
                " server again, review the change, and accept the new digests.",
            )
    log.info("mcp_tools_accepted", server=name, tools=accepted, subject=principal.subject)
    await ctx.agents.mcp.refresh()
