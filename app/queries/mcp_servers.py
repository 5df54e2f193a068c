"""Queries about MCP servers and the catalogue of tools."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from app.context import ServiceContext
from app.domain.agents.mcp_references import servers_in
from app.domain.errors import NotFound
from app.domain.json_values import JsonObject
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord
from app.domain.tools.tool_calls import Effect
from app.storage import mcp_tools
from app.storage.mcp_tools import ServerReport
from app.tools.mcp.instance import InstanceState
from app.tools.mcp.listing import StoredTool
from app.tools.mcp.server import McpServer

_AWAY = (InstanceState.FAILING, InstanceState.GIVEN_UP)
_MOST_TELLING = (
    InstanceState.UP,
    InstanceState.STARTING,
    InstanceState.GIVEN_UP,
    InstanceState.FAILING,
)


class McpToolView(Struct, frozen=True, kw_only=True):
    """A tool that a server lists or has listed."""

    name: str
    model_name: str | None
    """None if it can't be used."""
    effect: Effect | None
    is_offered: bool
    stored: StoredTool


class McpServerView(Struct, frozen=True, kw_only=True):
    """A server: its settings, its state in each process, and its tools."""

    server: McpServer
    reports: Sequence[ServerReport] = ()
    tools: Sequence[McpToolView] = ()

    @property
    def state(self) -> InstanceState:
        """The state of all processes together; one that is up counts most."""
        states = {InstanceState(each.state["state"]) for each in self.reports}
        return next((each for each in _MOST_TELLING if each in states), InstanceState.IDLE)

    def newest(self, key: str) -> object:
        """The value of the last report that has one."""
        for report in sorted(self.reports, key=lambda each: each.updated_at, reverse=True):
            if report.state.get(key) is not None:
                return report.state[key]
        return None


class CatalogTool(Struct, frozen=True, kw_only=True):
    """A tool that agents may name."""

    name: str
    source: str
    description: str
    parameters: JsonObject
    effect: Effect


async def list_servers(ctx: ServiceContext, principal: Principal) -> list[McpServerView]:
    """All servers, in the order of the agents file."""
    principal.require(Scope.RUNS_READ)
    servers = ctx.agents.mcp.servers
    if not servers:
        return []
    await ctx.agents.mcp.refresh()
    reports = await _reports(ctx)
    return [_view(server, reports.get(name, ())) for name, server in servers.items()]


async def get_server(ctx: ServiceContext, principal: Principal, name: str) -> McpServerView:
    principal.require(Scope.RUNS_READ)
    require_server(ctx, name)
    return next(
        each for each in await list_servers(ctx, principal) if each.server.spec.name == name
    )


async def _reports(ctx: ServiceContext) -> Mapping[str, Sequence[ServerReport]]:
    """The states of all servers: those of this process as they are, and of others as they were reported."""
    stored = await mcp_tools.states(ctx.database.pool)
    process, now = ctx.agents.mcp.process, ctx.clock.now()
    reports = {}
    for name, server in ctx.agents.mcp.servers.items():
        reports[name] = [each for each in stored.get(name, ()) if each.worker != process]
        if process:
            reports[name].append(ServerReport(process, asdict(server.report), now))
    return reports


def require_server(ctx: ServiceContext, name: str) -> None:
    if name not in ctx.agents.mcp.servers:
        raise NotFound(
            "mcp_server_not_found",
            f"There is no MCP server {name[:200]!r}. GET /v1/mcp-servers lists all.",
        )


def _view(server: McpServer, reports: Sequence[ServerReport]) -> McpServerView:
    usable, offered = server.listing.tools, server.known_tools
    tools = []
    for name, stored in server.stored.items():
        listed = usable.get(name)
        tools.append(
            McpToolView(
                name=name,
                model_name=None if listed is None else listed.model_name,
                effect=None if listed is None else listed.effect,
                is_offered=name in offered,
                stored=stored,
            )
        )
    return McpServerView(server=server, reports=reports, tools=tools)


def list_tools(ctx: ServiceContext, principal: Principal) -> list[CatalogTool]:
    """The tools that agents may name: functions, then those of MCP servers that are offered."""
    principal.require(Scope.RUNS_READ)
    functions = [(tool.descriptor, "function") for tool in ctx.agents.functions.values()]
    of_servers = [
        (tool.descriptor, f"mcp:{tool.server.spec.name}")
        for tool in ctx.agents.mcp.known_tools_of(
            [f"{name}/*" for name in ctx.agents.mcp.servers]
        ).values()
    ]
    return [
        CatalogTool(
            name=each.name,
            source=source,
            description=each.description,
            parameters=each.parameters,
            effect=each.effect,
        )
        for each, source in (*functions, *of_servers)
    ]


async def servers_away(ctx: ServiceContext, run: RunRecord) -> list[tuple[str, str]]:
    """The servers that the run's agent needs and that no process can start now, each with its error."""
    spec = ctx.agents.specs.get(run.agent_id)
    needed = frozenset() if spec is None or run.is_done else servers_in(spec.tools)
    if not needed:
        return []
    reports = await _reports(ctx)
    views = [
        McpServerView(server=server, reports=reports.get(name, ()))
        for name, server in ctx.agents.mcp.servers.items()
        if name in needed
    ]
    return [
        (view.server.spec.name, str(view.newest("last_error") or "it did not start"))
        for view in views
        if view.state in _AWAY
    ]
