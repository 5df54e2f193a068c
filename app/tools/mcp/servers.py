"""All MCP servers of a process, and the tools of agents that name them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module

from msgspec import Struct

from app.clock import SystemClock
from app.domain.agents.mcp_references import MCP_SEPARATOR
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId, AgentVersion
from app.domain.redaction import Redact
from app.domain.rules.globs import Glob
from app.domain.structs import replace
from app.runtime.agent import AgentLookup, Agents, ResolvedAgent
from app.runtime.ports.tools import Tool
from app.tools.mcp.authorize_tool import AuthorizeTool
from app.tools.mcp.client import AuthorizationNeeded, ClientEvents, OpenLibraryClient
from app.tools.mcp.instance import McpInstance
from app.tools.mcp.listing import ListedTool, StoredTool, ToolListings
from app.tools.mcp.oauth.server_authorization import ServerAuthorization, TokenServices
from app.tools.mcp.oauth.token_store import Holder, TokensInMemory
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

    async def tools_of(
        self, references: Sequence[str], holder: Holder | None = None
    ) -> dict[str, Tool]:
        """The tools that `server/glob` references name, by the model's names. Lists servers that need it.

        `holder` is the subject who started the run. Of a server to which the subject gave no access yet, there
        is only a tool that asks for it.
        """
        wanted = self._by_server(references)
        async with asyncio.TaskGroup() as group:
            listing = {
                server: group.create_task(_tools_or_none(server, holder)) for server, _ in wanted
            }
        listed = {server: task.result() for server, task in listing.items()}
        known = {server: tools or {} for server, tools in listed.items()}
        asking = [
            AuthorizeTool(server.authorization, is_offered=tools is None)
            for server, tools in listed.items()
            if server.authorization is not None and server.is_per_subject
        ]
        return {
            **{tool.descriptor.name: tool for tool in asking},
            **self._chosen(wanted, known),
        }

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


async def _tools_or_none(
    server: McpServer, holder: Holder | None
) -> Mapping[str, ListedTool] | None:
    """The server's tools; None if a person has to give access before they can be listed."""
    try:
        return await server.tools(server.own_holder(holder))
    except AuthorizationNeeded:
        return None


@asynccontextmanager
async def opened_servers(
    specs: Mapping[str, McpServerSpec],
    listings: ToolListings,
    environ: Mapping[str, str],
    redact: Redact,
    *,
    executes: bool,
    token_services: TokenServices | None = None,
) -> AsyncIterator[McpServers]:
    """The servers, none of them started. On leaving, all are closed at the same time."""
    open_client = _library() if specs and executes else None
    async with asyncio.TaskGroup() as tasks:

        def new_instance(server: McpServer, holder: Holder) -> McpInstance:
            assert open_client is not None
            events = ClientEvents(on_tools_changed=server.on_tools_changed, redact=redact)
            authorization = server.authorization
            tokens = None if authorization is None else authorization.source(holder)
            opening = partial(open_client, tokens=tokens)
            return McpInstance(server.spec, opening, environ, events, tasks)

        services = token_services or TokenServices(
            store=TokensInMemory(), seal=None, clock=SystemClock(), environ=environ
        )
        servers = McpServers(
            {
                name: McpServer(
                    spec, listings, new_instance, executes, _authorization(spec, services)
                )
                for name, spec in specs.items()
            },
            listings,
        )
        try:
            yield servers
        finally:
            servers.stop()


def _authorization(spec: McpServerSpec, services: TokenServices) -> ServerAuthorization | None:
    return None if spec.oauth is None else ServerAuthorization(spec, spec.oauth, services)


def _library() -> OpenLibraryClient:
    """The clients of the library, which is an extra: it is imported only if there is a server."""
    try:
        module = import_module("app.tools.mcp.protocol.library_client")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "the agents file has [mcp.…], and the library for MCP isn't installed. Install it with"
            " `pip install 'holdfast-server[mcp]'`, or remove the table."
        ) from error
    open_client: OpenLibraryClient = module.open_client
    return open_client


class AgentsWithMcpTools(Struct, frozen=True):
    """The agents of one run. An activation works with the tools that were listed when it began."""

    agents: Agents
    servers: McpServers
    holder: Holder | None
    """The subject who started the run."""

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> AgentLookup:
        agent = await self.agents.at_version(agent_id, version)
        if not isinstance(agent, ResolvedAgent) or not agent.spec.has_mcp_tools:
            return agent
        # The tools that are known without asking may be withdrawn by now.
        own = {name: tool for name, tool in agent.tools.items() if not isinstance(tool, McpTool)}
        of_servers = await self.servers.tools_of(agent.spec.tools, self.holder)
        return replace(agent, tools={**own, **of_servers})


class NoListings:
    """Listings that aren't stored: for checks of a configuration."""

    async def load(self) -> Mapping[str, Sequence[StoredTool]]:
        return {}

    async def save(
        self, server: str, tools: Mapping[str, object], *, is_whole: bool
    ) -> Sequence[StoredTool]:
        return ()


NO_SERVERS = McpServers({}, NoListings())
