"""Agents of one run with what its start asks of their answers: a format, and a choice among their tools."""

from dataclasses import dataclass, field
from functools import cached_property

from msgspec import Struct

from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import JsonObject
from app.domain.runs.output_specs import OutputSpec
from app.domain.runs.requested_answers import output_of, tools_of
from app.domain.structs import replace
from app.runtime.agent import AgentLookup, Agents, ResolvedAgent
from app.tools.schemas.subset import subset_validator
from app.tools.schemas.validate import Validator, build_validator


@dataclass(frozen=True)
class SchemaOutput:
    """The format that a schema describes. A client's schema has to be in the bounded subset."""

    spec: OutputSpec
    is_trusted: bool = field(default=False, kw_only=True)

    @cached_property
    def _validator(self) -> Validator:
        build = build_validator if self.is_trusted else subset_validator
        return build(self.spec.schema)

    def problem(self, value: JsonObject) -> str | None:
        try:
            return self._validator.problem(value)
        except ConfigurationError as error:
            # An earlier release may have stored any schema.
            return f"its schema can't be used: {error}"


class AgentsWithRequestedAnswer(Struct, frozen=True):
    """The agents of one run, with its output format and only the tools that it names."""

    agents: Agents
    output: SchemaOutput | None
    tools: frozenset[str] | None

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> AgentLookup:
        agent = await self.agents.at_version(agent_id, version)
        if not isinstance(agent, ResolvedAgent):
            return agent
        if self.tools is not None:
            kept = {name: tool for name, tool in agent.tools.items() if name in self.tools}
            agent = replace(agent, tools=kept)
        return agent if self.output is None else replace(agent, output=self.output)


def with_requested_answer(agents: Agents, request: JsonObject) -> Agents:
    """The agents for a run with this request."""
    output, tools = output_of(request), tools_of(request)
    if output is None and tools is None:
        return agents
    return AgentsWithRequestedAnswer(
        agents, None if output is None else SchemaOutput(output), tools
    )
