"""Gives agents with many tools their search tool, when an activation begins."""

from msgspec import Struct

from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import JsonObject
from app.domain.rules.globs import Glob
from app.domain.runs.requested_answers import forced_tool_of
from app.domain.structs import replace
from app.runtime.agent import AgentLookup, Agents, ResolvedAgent
from app.runtime.tool_search.search_tool import tool_search_of


class AgentsWithToolSearch(Struct, frozen=True):
    """The agents of one run. The tool that the start forces is always shown."""

    agents: Agents
    forced_tool: str | None

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> AgentLookup:
        agent = await self.agents.at_version(agent_id, version)
        if not isinstance(agent, ResolvedAgent):
            return agent
        return with_tool_search(agent, self.forced_tool)


def with_searchable_tools(agents: Agents, request: JsonObject) -> Agents:
    """The agents for a run with this request."""
    return AgentsWithToolSearch(agents, forced_tool_of(request))


def with_tool_search(agent: ResolvedAgent, forced_tool: str | None = None) -> ResolvedAgent:
    """The agent with a search tool if its policy asks for one. Tools of plugins and delegates are always shown."""
    policy = agent.spec.tool_search
    if not policy.applies_to(len(agent.tools)):
        return agent
    functions = frozenset(agent.spec.tools)
    always = [Glob(text) for text in policy.always]
    deferred = [
        name
        for name, tool in agent.tools.items()
        if (name in functions or tool.descriptor.source is not None or tool.descriptor.is_frontend)
        and name != forced_tool
        and tool.descriptor.is_offered
        and not any(glob.fits(name) for glob in always)
    ]
    if not deferred:
        return agent
    search = tool_search_of(agent.tools, deferred)
    return replace(agent, tools={**agent.tools, search.name: search.tool}, tool_search=search)
