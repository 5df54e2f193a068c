"""AgentSpecs: the definition of an agent, as data that can be stored, compared and resolved later."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, asdict, fields

from app.domain.agents.endpoints import Endpoint, endpoint_from_json, endpoint_to_json
from app.domain.agents.mcp_references import servers_in
from app.domain.agents.skills import SkillSpec, skill_from_json, skill_to_json
from app.domain.agents.tool_search import (
    ToolSearchPolicy,
    tool_search_from_json,
    tool_search_to_json,
)
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId, AgentVersion
from app.domain.inference.options import (
    NO_OPTIONS,
    InferenceOptions,
    RetryPolicy,
    options_from_json,
    options_to_json,
)
from app.domain.json_values import JsonObject, digest
from app.domain.runs.output_specs import OutputSpec, output_from_json, output_to_json
from app.domain.tickets.terms import (
    ApproverRule,
    OnExpiry,
    TicketTerms,
    approvers_from_json,
    approvers_to_json,
)


class ToolExecution(StrEnum):
    """How the calls of one answer are executed."""

    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"


class Delegation(Struct, frozen=True, kw_only=True):
    """Limits for an agent's delegates: the depth of the tree below the first run, the children of one run,
    and whether a child run is kept after its result."""

    max_depth: int = 4
    max_children: int = 16
    keep: bool = True


class AgentSpec(Struct, frozen=True, kw_only=True):
    """One agent. `approval` names the tools whose calls need approval.

    `background` names the tools whose calls become background tasks, `handoffs` the agents that may take
    over its runs. `plugins` are in their order, each with its configuration. An agent with an `endpoint` is
    executed there and has no model here.
    """

    id: AgentId
    model: str = ""
    system_prompt: str = ""
    description: str = ""
    tools: tuple[str, ...] = ()
    approval: tuple[str, ...] = ()
    background: tuple[str, ...] = ()
    handoffs: tuple[AgentId, ...] = ()
    max_rounds: int = 16
    tool_execution: ToolExecution = ToolExecution.SEQUENTIAL
    options: InferenceOptions = NO_OPTIONS
    retry: RetryPolicy = RetryPolicy()
    plugins: Mapping[str, JsonObject] = {}
    approvers: Mapping[str, ApproverRule] = {}
    """Who may approve calls of a tool, by tool; without an entry every decider may."""
    ticket_expires_in: float | None = None
    on_expiry: OnExpiry = OnExpiry.REJECT
    endpoint: Endpoint | None = None
    delegates: tuple[AgentId, ...] = ()
    """Agents that this one may start as child runs."""
    delegation: Delegation = Delegation()
    output: OutputSpec | None = None
    """What final answers have to be."""
    tool_search: ToolSearchPolicy = ToolSearchPolicy()
    skills: tuple[SkillSpec, ...] = ()
    script_timeout: float = 60.0
    """The seconds that a script of a skill may run."""

    @property
    def has_mcp_tools(self) -> bool:
        """Whether `tools` names tools of MCP servers: `server/glob`."""
        return bool(servers_in(self.tools))

    def ticket_terms(self, tool: str, policy: Mapping[str, Any]) -> TicketTerms:
        """The terms of a ticket about this tool; the ticket policy of the run's start comes first."""
        on_expiry = policy.get("on_expiry")
        return TicketTerms(
            expires_in=policy.get("expires_in") or self.ticket_expires_in,
            on_expiry=self.on_expiry if on_expiry is None else OnExpiry(on_expiry),
            approvers=self.approvers.get(tool),
        )

    @property
    def version(self) -> AgentVersion:
        """A digest of everything that determines the agent's behaviour."""
        return AgentVersion(digest(agent_to_json(self)))


def agent_to_json(spec: AgentSpec) -> dict[str, Any]:
    """The fields without their default values, so a new field in a later version keeps old digests.

    Plugins are a list, because their order counts and JSON objects have none.
    """
    body = {
        each.name: value
        for each in _FIELDS
        if (value := getattr(spec, each.name)) != _default(each)
    }
    if "options" in body:
        body["options"] = options_to_json(spec.options)
    if "retry" in body:
        body["retry"] = asdict(spec.retry)
    if "plugins" in body:
        body["plugins"] = [[name, dict(config)] for name, config in spec.plugins.items()]
    if "delegation" in body:
        body["delegation"] = asdict(spec.delegation)
    if spec.output is not None:
        body["output"] = output_to_json(spec.output)
    if "tool_search" in body:
        body["tool_search"] = tool_search_to_json(spec.tool_search)
    if "skills" in body:
        body["skills"] = [skill_to_json(skill) for skill in spec.skills]
    if spec.endpoint is not None:
        body["endpoint"] = endpoint_to_json(spec.endpoint)
    if "approvers" in body:
        body["approvers"] = {tool: approvers_to_json(rule) for tool, rule in spec.approvers.items()}
    return body


def agent_from_json(raw: JsonObject) -> AgentSpec:
    """The stored spec. Unknown keys raise, because this version can't honour them."""
    unknown = sorted(set(raw) - set(AgentSpec.__struct_fields__))
    if unknown:
        raise ConfigurationError(
            f"agent {raw.get('id')!r} was stored with {unknown}, which this version can't honour"
        )
    body = dict(raw)
    for name in ("tools", "approval", "background", "handoffs", "delegates"):
        body[name] = tuple(body.get(name, ()))
    body |= {name: read(body[name]) for name, read in _READERS.items() if name in body}
    return AgentSpec(**body)


def _retry_from_json(raw: JsonObject) -> RetryPolicy:
    fallbacks = tuple(raw.get("fallback_upstream_models", ()))
    return RetryPolicy(**{**raw, "fallback_upstream_models": fallbacks})


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "tool_execution": ToolExecution,
    "options": options_from_json,
    "retry": _retry_from_json,
    "plugins": dict,
    "approvers": lambda raw: {tool: approvers_from_json(rule) for tool, rule in raw.items()},
    "delegation": lambda raw: Delegation(**raw),
    "output": output_from_json,
    "tool_search": tool_search_from_json,
    "skills": lambda raw: tuple(skill_from_json(skill) for skill in raw),
    "endpoint": endpoint_from_json,
    "on_expiry": OnExpiry,
}


def _default(each: FieldInfo) -> Any:
    return each.default if each.default_factory is NODEFAULT else each.default_factory()


_FIELDS = fields(AgentSpec)
