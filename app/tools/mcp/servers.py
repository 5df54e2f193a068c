"""All MCP servers of a process, and the tools of agents that name them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module

from app.domain.agents.mcp_references import MCP_SEPARATOR
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId, AgentVersion
from app.domain.redaction import Redact
from app.domain.rules.globs import Glob
from app.runtime.agent import AgentLookup, Agents, ResolvedAgent
from app.tools.mcp.client import ClientEvents, OpenClient
from app.tools.mcp.instance import McpInstance
from app.tools.mcp.listing import ListedTool, StoredTool, ToolListings
from app.tools.mcp.server import McpServer
from app.tools.mcp.server_spec import McpServerSpec
from app.tools.mcp.tool import McpTool


class McpServers:
    """The servers by name. A process that executes no runs starts none of them."""

    def __init__(self, servers: Mapping[str, McpServer], listings: ToolListings) -> None:
        self.servers = servers
        self._listings = listings
        self._tools: dict[tuple[str, str], McpTool] = {}
        self.process = ""
        """The id of this process, if it may start servers."""

    async def refresh(self) -> None:
        """Read the stored tools of all servers, with what people have accepted elsewhere."""
        if not self.servers:
            return
        stored = await self._listings.load()
        for name, server in self.servers.items():
            server.set_stored(stored.get(name, ()))

    async def tools_of(self, references: Sequence[str]) -> dict[str, McpTool]:
        """The tools that `server/glob` references name, by the model's names. Lists servers that need it."""
        wanted = self._by_server(references)
        async with asyncio.TaskGroup() as group:
            listing = {server: group.create_task(server.tools()) for server, _ in wanted}
        return self._chosen(wanted, {server: task.result() for server, task in listing.items()})

    def known_tools_of(self, references: Sequence[str]) -> dict[str, McpTool]:
        """As `tools_of`, without asking a server."""
        wanted = self._by_server(references)
        return self._chosen(wanted, {server: server.known_tools for server, _ in wanted})

    def _by_server(self, references: Sequence[str]) -> list[tuple[McpServer, Glob]]:
        parts = [each.partition(MCP_SEPARATOR) for each in references if MCP_SEPARATOR in each]
        return [
            (self.servers[name], Glob(tools)) for name, _, tools in parts if name in self.servers
        ]

    def _chosen(
        self,
        wanted: Sequence[tuple[McpServer, Glob]],
        tools: Mapping[McpServer, Mapping[str, ListedTool]],
    ) -> dict[str, McpTool]:
        return {
            listed.model_name: self._tool(server, listed)
            for server, glob in wanted
            for listed in tools[server].values()
            if glob.fits(listed.name)
        }

    def _tool(self, server: McpServer, listed: ListedTool) -> McpTool:
        """The same tool as long as its description is the same, because its schema is compiled once."""
        key = server.spec.name, listed.name
        known = self._tools.get(key)
        if known is None or known.listed.digest != listed.digest:
            known = self._tools[key] = McpTool(server, listed)
        return known

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()


@asynccontextmanager
async def opened_servers(
    specs: Mapping[str, McpServerSpec],
    listings: ToolListings,
    environ: Mapping[str, str],
    redact: Redact,
    *,
    executes: bool,
) -> AsyncIterator[McpServers]:
    """The servers, none of them started. On leaving, all are closed at the same time."""
    open_client = _library() if specs and executes else None
    async with asyncio.TaskGroup() as tasks:

        def new_instance(server: McpServer) -> McpInstance:
            assert open_client is not None
            events = ClientEvents(on_tools_changed=server.on_tools_changed, redact=redact)
            return McpInstance(server.spec, open_client, environ, events, tasks)

        servers = McpServers(
            {
                name: McpServer(spec, listings, new_instance, executes)
                for name, spec in specs.items()
            },
            listings,
        )
        try:
            yield servers
        finally:
            servers.stop()


def _library() -> OpenClient:
    """The clients of the library, which is an extra: it is imported only if there is a server."""
    try:
        module = import_module("app.tools.mcp.protocol.library_client")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "the agents file has [mcp.…], and the library for MCP isn't installed. Install it with"
            " `pip install 'holdfast-server[mcp]'`, or remove the table."
        ) from error
    open_client: OpenClient = module.open_client
    return open_client


@dataclass(frozen=True, slots=True)
class AgentsWithMcpTools:
    """The agents of one run. An activation works with the tools that were listed when it began."""

    agents: Agents
    servers: McpServers

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> AgentLookup:
        agent = await self.agents.at_version(agent_id, version)
        if not isinstance(agent, ResolvedAgent) or not agent.spec.has_mcp_tools:
            return agent
        # The tools that are known without asking may be withdrawn by now.
        own = {name: tool for name, tool in agent.tools.items() if not isinstance(tool, McpTool)}
        return replace(agent, tools={**own, **await self.servers.tools_of(agent.spec.tools)})


class NoListings:
    """Listings that aren't stored: for checks of a configuration."""

    async def load(self) -> Mapping[str, Sequence[StoredTool]]:
        return {}

    async def save(self, server: str, tools: Mapping[str, object]) -> Sequence[StoredTool]:
        return ()


NO_SERVERS = McpServers({}, NoListings())
