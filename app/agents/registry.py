"""The registry: the agents that can be started, and the versions that runs were started with."""

from collections.abc import Mapping

from msgspec import Struct

from app.agents.catalog import Catalog
from app.agents.endpoints import NO_ENDPOINTS, EndpointCatalog
from app.agents.resolve import resolve
from app.domain.agents.capabilities import FULL, Capabilities
from app.domain.agents.specs import AgentSpec
from app.domain.deps import NO_DEPS, Deps
from app.domain.errors import ConfigurationError, NotFound
from app.domain.ids import AgentId, AgentVersion, Tenant
from app.domain.principals import ALL_TENANTS
from app.domain.structs import replace
from app.llm.catalog import ModelCatalog
from app.runtime.agent import AgentLookup, RemoteAgent, ResolvedAgent, UnknownAgentVersion
from app.runtime.ports.tools import Tool
from app.storage import agents
from app.storage.agents import StoredVersion
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.tools.mcp.servers import NO_SERVERS, McpServers


class AgentRegistry:
    def __init__(
        self,
        catalog: Catalog,
        models: ModelCatalog,
        database: Database,
        endpoints: EndpointCatalog = NO_ENDPOINTS,
        deps: Deps = NO_DEPS,
        mcp: McpServers | None = None,
    ) -> None:
        self._catalog = catalog
        self._models = models
        self._database = database
        self._endpoints = endpoints
        self._deps = deps
        self.mcp = NO_SERVERS if mcp is None else mcp
        self._versions = {spec.id: spec.version for spec in catalog.agents.values()}
        self._resolved: dict[AgentVersion, ResolvedAgent | RemoteAgent] = {}

    @property
    def specs(self) -> Mapping[AgentId, AgentSpec]:
        """Agents that may be started, in the order of their file."""
        return self._catalog.agents

    @property
    def functions(self) -> Mapping[str, Tool]:
        """The functions that agents may name as tools."""
        return self._catalog.tools

    def version(self, agent_id: AgentId) -> AgentVersion:
        """The version that a run started now will be bound to."""
        version = self._versions.get(agent_id)
        if version is None:
            raise NotFound(
                "agent_not_found",
                f"There is no agent {agent_id!r}. GET /v1/agents lists those that there are.",
            )
        return version

    def capabilities(self, agent_id: AgentId) -> Capabilities:
        """The capabilities of the agent's backend."""
        spec = self._catalog.agents.get(agent_id)
        if spec is None or spec.endpoint is None:
            return FULL
        return self._endpoints.capabilities(spec.endpoint)

    async def versions(self, tenant: Tenant, agent_id: AgentId, limit: int) -> list[StoredVersion]:
        """The newest versions of the agent that the database has; none while it doesn't respond."""
        try:
            async with self._database.reading_by_key() as connection:
                return await agents.versions(connection, tenant, agent_id, limit)
        except DATABASE_UNAVAILABLE:
            return []

    async def publish(self) -> None:
        """Store the specs of the file, so that runs find their version after the file has changed."""
        async with self._database.transaction() as connection:
            await agents.publish_specs(connection, ALL_TENANTS, list(self._catalog.agents.values()))

    async def resolve(
        self, tenant: Tenant, agent_id: AgentId, version: AgentVersion
    ) -> AgentLookup:
        """The agent in exactly this version, or why there is none. No MCP server is asked for its tools."""
        agent = await self._of_version(tenant, agent_id, version)
        if not isinstance(agent, ResolvedAgent) or not agent.spec.has_mcp_tools:
            return agent
        return replace(agent, tools={**agent.tools, **self.mcp.known_tools_of(agent.spec.tools)})

    async def _of_version(
        self, tenant: Tenant, agent_id: AgentId, version: AgentVersion
    ) -> AgentLookup:
        if version in self._resolved:
            return self._resolved[version]
        spec = self._catalog.agents.get(agent_id)
        if spec is None or self._versions[agent_id] != version:
            try:
                async with self._database.reading_by_key() as connection:
                    spec = await agents.find(connection, tenant, agent_id, version)
            except ConfigurationError as error:
                return UnknownAgentVersion(str(error))
        if spec is None:
            return UnknownAgentVersion(f"agent {agent_id!r} {version} isn't known to this database")
        resolved = self._resolve(spec)
        if not isinstance(resolved, UnknownAgentVersion):
            self._resolved[version] = resolved
        return resolved

    def _resolve(self, spec: AgentSpec) -> AgentLookup:
        if spec.endpoint is None:
            return resolve(spec, self._catalog, self._models, self._deps)
        problem = self._endpoints.problem(spec.endpoint)
        if problem is not None:
            return UnknownAgentVersion(f"agent {spec.id!r} can't run: {problem}")
        return RemoteAgent(spec, self._endpoints.capabilities(spec.endpoint))

    def for_tenant(self, tenant: Tenant) -> "TenantAgents":
        """The agents for the runs of one tenant."""
        return TenantAgents(self, tenant)

    def current_version(self, agent_id: AgentId) -> AgentVersion | None:
        return self._versions.get(agent_id)

    def known_versions(self) -> list[AgentVersion]:
        """Versions that this process can run."""
        return [*self._versions.values(), *self._resolved]


class TenantAgents(Struct, frozen=True):
    registry: AgentRegistry
    tenant: Tenant

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> AgentLookup:
        """The agent in this version, or in the current one when `version` is None."""
        wanted = version or self.registry.current_version(agent_id)
        if wanted is None:
            return UnknownAgentVersion(f"there is no agent {agent_id!r}")
        return await self.registry.resolve(self.tenant, agent_id, wanted)
