"""AgentSpecs: what an agent is, as data that can be stored, compared and resolved later."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from app.domain.agents.endpoints import Endpoint, endpoint_from_json, endpoint_to_json
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """What an agent may do with its delegates: how deep a tree may grow below the first run, how many
    children a run may have, and whether a child is kept once its answer is."""

    max_depth: int = 4
    max_children: int = 16
    keep: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One agent. `approval` names the tools whose calls become tickets.

    `background` names tools whose calls go on as tasks of their own while the run does; `handoffs` the
    agents that this one may give its run to. `plugins` are in their order, each with its configuration.
    An agent with an `endpoint` is executed there, by means of its own; it has no model here.
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
    plugins: Mapping[str, JsonObject] = field(default_factory=dict)
    approvers: Mapping[str, ApproverRule] = field(default_factory=dict)
    """Who may let calls of a tool pass, where not everybody may."""
    ticket_expires_in: float | None = None
    on_expiry: OnExpiry = OnExpiry.REJECT
    endpoint: Endpoint | None = None
    delegates: tuple[AgentId, ...] = ()
    """Agents that this one may give work to, as runs of their own."""
    delegation: Delegation = Delegation()

    def ticket_terms(self, tool: str, policy: Mapping[str, Any]) -> TicketTerms:
        """The terms of a ticket about this tool; what its run was started with comes first."""
        on_expiry = policy.get("on_expiry")
        return TicketTerms(
            expires_in=policy.get("expires_in") or self.ticket_expires_in,
            on_expiry=self.on_expiry if on_expiry is None else OnExpiry(on_expiry),
            approvers=self.approvers.get(tool),
        )

    @property
    def version(self) -> AgentVersion:
        """Changes with anything that changes how the agent behaves."""
        return AgentVersion(digest(agent_to_json(self)))


def agent_to_json(spec: AgentSpec) -> dict[str, Any]:
    """What isn't at its default: a key that is new in a later version changes no older agent.

    Plugins are a list, because their order counts and that of an object's keys is lost.
    """
    body = {
        each.name: value
        for each in fields(spec)
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
    if spec.endpoint is not None:
        body["endpoint"] = endpoint_to_json(spec.endpoint)
    if "approvers" in body:
        body["approvers"] = {tool: approvers_to_json(rule) for tool, rule in spec.approvers.items()}
    return body


def agent_from_json(raw: JsonObject) -> AgentSpec:
    """The spec that was stored. A key that this version doesn't know can't be honoured."""
    known = AgentSpec.__dataclass_fields__
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise ConfigurationError(
            f"agent {raw.get('id')!r} was stored with {unknown}, which this version can't honour"
        )
    body = dict(raw)
    for name in ("tools", "approval", "background", "handoffs", "delegates"):
        body[name] = tuple(body.get(name, ()))
    if "tool_execution" in body:
        body["tool_execution"] = ToolExecution(body["tool_execution"])
    if "options" in body:
        body["options"] = options_from_json(body["options"])
    if "retry" in body:
        retry = {**body["retry"]}
        retry["fallback_upstream_models"] = tuple(retry.get("fallback_upstream_models", ()))
        body["retry"] = RetryPolicy(**retry)
    if "plugins" in body:
        body["plugins"] = {name: config for name, config in body["plugins"]}
    if "approvers" in body:
        body["approvers"] = {
            tool: approvers_from_json(rule) for tool, rule in body["approvers"].items()
        }
    if "delegation" in body:
        body["delegation"] = Delegation(**body["delegation"])
    if "endpoint" in body:
        body["endpoint"] = endpoint_from_json(body["endpoint"])
    if "on_expiry" in body:
        body["on_expiry"] = OnExpiry(body["on_expiry"])
    return AgentSpec(**body)


def _default(each: Any) -> Any:
    return (
        each.default_factory()
        if each.default is MISSING and each.default_factory is not MISSING
        else each.default
    )
