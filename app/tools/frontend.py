"""Frontend tools: tools that the client executes, offered to the model for one run.

The runtime has only their descriptors. A call waits, with a ticket, until the client sends its result. The
tools are part of the run's request, so they exist after a takeover and after a hand-off, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec import Struct

from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import Json, JsonObject, with_sorted_keys
from app.domain.structs import replace
from app.domain.tools.tool_calls import ToolDescriptor, ToolResult
from app.runtime.agent import AgentLookup, Agents, ResolvedAgent
from app.runtime.ports.tool_context import ToolContext
from app.tools.schemas.subset import problem_of_schema, subset_validator
from app.tools.schemas.validate import Validator

MAX_FRONTEND_TOOLS = 64
REQUEST_KEY = "frontend_tools"
"""The key of the tools in a run's request."""
_ANYTHING: JsonObject = {"type": "object", "properties": {}}


@dataclass(frozen=True)
class FrontendTool:
    """A tool that has only a descriptor."""

    descriptor: ToolDescriptor

    @cached_property
    def _validator(self) -> Validator:
        return subset_validator(self.descriptor.parameters)

    def invalid_arguments(self, arguments: Json) -> str | None:
        try:
            return self._validator.problem({} if arguments is None else arguments)
        except ConfigurationError as error:
            # Runs that an earlier release started may have any schema.
            return f"the client's schema of this tool can't be used: {error}"

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        # The gate suspends every call before this.
        return ToolResult.error(
            self.descriptor.name, "This tool is carried out by the client.", may_be_retried=False
        )


class AgentsWithFrontendTools(Struct, frozen=True):
    """The agents of one run. Each has the client's tools besides its own."""

    agents: Agents
    tools: Mapping[str, FrontendTool]

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> AgentLookup:
        agent = await self.agents.at_version(agent_id, version)
        if not isinstance(agent, ResolvedAgent):
            return agent
        # A client's tool never replaces a tool of the agent.
        return replace(agent, tools={**self.tools, **agent.tools})


def with_frontend_tools(agents: Agents, request: JsonObject) -> Agents:
    """The agents for a run with this request."""
    offered: Sequence[JsonObject] = request.get(REQUEST_KEY, ())
    if not offered:
        return agents
    return AgentsWithFrontendTools(agents, {each["name"]: _tool(each) for each in offered})


def problem_of_parameters(parameters: JsonObject) -> str | None:
    """Return why a client's schema can't be used, or None."""
    if parameters.get("type", "object") != "object":
        return 'must describe an object: "type": "object"'
    return problem_of_schema(parameters)


def _tool(offered: JsonObject) -> FrontendTool:
    return FrontendTool(
        ToolDescriptor(
            name=offered["name"],
            description=offered.get("description", ""),
            # Postgres changes the order of keys, and the model's request stays the same.
            parameters=with_sorted_keys(
                {"type": "object", **(offered.get("parameters") or _ANYTHING)}
            ),
            is_frontend=True,
        )
    )
