"""The roster: which agents may be started now, and how a run finds the version it was started with."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.agents.catalog import Catalog
from app.agents.endpoints import NO_ENDPOINTS, EndpointCatalog
from app.agents.resolve import resolve
from app.domain.agents.capabilities import FULL, Capabilities
from app.domain.agents.specs import AgentSpec
from app.domain.errors import ConfigurationError, NotFound
from app.domain.ids import AgentId, AgentVersion, Tenant
from app.domain.principals import ALL_TENANTS
from app.llm.catalog import ModelCatalog
from app.runtime.agent import Found, RemoteAgent, ResolvedAgent, UnknownAgentVersion
from app.storage import agents
from app.storage.postgres.database import Database


class AgentRegistry:
    def __init__(
        self,
        catalog: Catalog,
        models: ModelCatalog,
        database: Database,
        endpoints: EndpointCatalog = NO_ENDPOINTS,
    ) -> None:
        self._catalog = catalog
        self._models = models
        self._database = database
        self._endpoints = endpoints
        self._versions = {spec.id: spec.version for spec in catalog.agents.values()}
        self._resolved: dict[AgentVersion, ResolvedAgent | RemoteAgent] = {}

    @property
    def specs(self) -> Mapping[AgentId, AgentSpec]:
        """Agents that may be started, in the order of their file."""
        return self._catalog.agents

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
        """What whoever executes this agent can do."""
        spec = self._catalog.agents.get(agent_id)
        if spec is None or spec.endpoint is None:
            return FULL
        return self._endpoints.capabilities(spec.endpoint)

    async def publish(self) -> None:
        """Keep every version of the file, so that runs find theirs after the file has changed."""
        async with self._database.transaction() as connection:
            await agents.publish_specs(connection, ALL_TENANTS, list(self._catalog.agents.values()))

    async def resolve(self, tenant: Tenant, agent_id: AgentId, version: AgentVersion) -> Found:
        """The agent exactly as it was, or why it can't be had."""
        if version in self._resolved:
            return self._resolved[version]
        spec = self._catalog.agents.get(agent_id)
        if spec is None or self._versions[agent_id] != version:
            try:
                async with self._database.reading() as connection:
                    spec = await agents.find(connection, tenant, agent_id, version)
            except ConfigurationError as error:
                return UnknownAgentVersion(str(error))
        if spec is None:
            return UnknownAgentVersion(f"agent {agent_id!r} {version} isn't known to this database")
        resolved = self._resolve(spec)
        if not isinstance(resolved, UnknownAgentVersion):
            self._resolved[version] = resolved
        return resolved

    def _resolve(self, spec: AgentSpec) -> Found:
        if spec.endpoint is None:
            return resolve(spec, self._catalog, self._models)
        problem = self._endpoints.problem(spec.endpoint)
        if problem is not None:
            return UnknownAgentVersion(f"agent {spec.id!r} can't run: {problem}")
        return RemoteAgent(spec, self._endpoints.capabilities(spec.endpoint))

    def for_tenant(self, tenant: Tenant) -> "TenantAgents":
        """The agents as runs of one tenant find them."""
        return TenantAgents(self, tenant)

    def current_version(self, agent_id: AgentId) -> AgentVersion | None:
        return self._versions.get(agent_id)

    def known_versions(self) -> list[AgentVersion]:
        """Versions that this process can certainly run."""
        return [*self._versions.values(), *self._resolved]


@dataclass(frozen=True, slots=True)
class TenantAgents:
    registry: AgentRegistry
    tenant: Tenant

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> Found:
        """The agent exactly as it was, or as it is now when no version is asked for."""
        wanted = version or self.registry.current_version(agent_id)
        if wanted is None:
            return UnknownAgentVersion(f"there is no agent {agent_id!r}")
        return await self.registry.resolve(self.tenant, agent_id, wanted)
