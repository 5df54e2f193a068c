"""Frontend tools: what a client can do itself, offered to the model for one run.

The runtime knows no more of such a tool than its descriptor. A call of it is never executed here: it
waits, with a ticket, for the client to send its result. They are part of the run's request, so that
whoever executes the run has them, also after a takeover and when another agent goes on with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import Json, JsonObject
from app.domain.tools.tool_calls import ToolDescriptor, ToolResult
from app.runtime.agent import Agents, Found, ResolvedAgent
from app.runtime.ports import ToolContext
from app.tools.schemas.subset import problem_of_schema, subset_validator
from app.tools.schemas.validate import Validator

MAX_FRONTEND_TOOLS = 64
IN_REQUEST = "frontend_tools"
"""Where a run's request has them."""
_ANYTHING: JsonObject = {"type": "object", "properties": {}}


@dataclass(frozen=True)
class FrontendTool:
    """A tool known only by its descriptor."""

    descriptor: ToolDescriptor

    @cached_property
    def _validator(self) -> Validator:
        return subset_validator(self.descriptor.parameters)

    def invalid_arguments(self, arguments: Json) -> str | None:
        try:
            return self._validator.problem({} if arguments is None else arguments)
        except ConfigurationError as error:
            # A run that was started by an earlier release may have any schema.
            return f"the client's description of this tool is no use: {error}"

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        # The gate stops every call before it gets here.
        return ToolResult.error(
            self.descriptor.name, "This tool is carried out by the client.", may_be_retried=False
        )


@dataclass(frozen=True, slots=True)
class AgentsWithFrontendTools:
    """Agents as one run finds them: each with the client's tools besides its own."""

    agents: Agents
    tools: Mapping[str, FrontendTool]

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> Found:
        agent = await self.agents.at_version(agent_id, version)
        if not isinstance(agent, ResolvedAgent):
            return agent
        # A tool of the agent's own is never taken over by a client.
        return replace(agent, tools={**self.tools, **agent.tools})


def with_frontend_tools(agents: Agents, request: JsonObject) -> Agents:
    """The agents for a run that was started with this request."""
    offered: Sequence[JsonObject] = request.get(IN_REQUEST, ())
    if not offered:
        return agents
    return AgentsWithFrontendTools(agents, {each["name"]: _tool(each) for each in offered})


def problem_of_parameters(parameters: JsonObject) -> str | None:
    """Why a client's schema can't be used, if it can't."""
    if parameters.get("type", "object") != "object":
        return 'must describe an object: "type": "object"'
    return problem_of_schema(parameters)


def _tool(offered: JsonObject) -> FrontendTool:
    return FrontendTool(
        ToolDescriptor(
            name=offered["name"],
            description=offered.get("description", ""),
            parameters={"type": "object", **(offered.get("parameters") or _ANYTHING)},
            is_frontend=True,
        )
    )
