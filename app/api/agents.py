"""Routes of agents."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from app.api.lists import PagedAscending, numbered_page
from app.api.schemas.common import Page, ResponseModel, Time
from app.api.schemas.tickets import ApproversOut
from app.context import ServiceContext
from app.domain.agents.capabilities import Cancellation, Continuation, OutputKind, Transcript, Waits
from app.domain.agents.specs import AgentSpec
from app.domain.errors import NotFound
from app.domain.ids import AgentId
from app.domain.tickets.terms import OnExpiry
from app.domain.tools.tool_calls import Effect, ToolDescriptor
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.runtime.agent import ResolvedAgent

MAX_VERSIONS = 20

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/agents", tags=["agents"])


class EndpointOut(ResponseModel):
    """How an agent on another server is called. Its address isn't shown."""

    backend: str
    target: str | None


class CapabilitiesOut(ResponseModel):
    """What runs of this agent support. A request that needs more gets 422 `backend_unsupported`."""

    cancellation: Cancellation = Field(description="How an executing run is cancelled.")
    decisions: bool = Field(description="Whether its tickets can be decided.")
    overrides: bool
    frontend_tools: bool
    limits: bool
    structured_output: bool = Field(
        description="Whether the final answer can be asked for in a format."
    )
    pause: bool = Field(description="Whether an executing run can be paused.")
    replaces: bool = Field(
        description="Whether its runs can replace the end of a conversation: `replaces` of a start."
    )
    continuation: Continuation = Field(
        description="Whether a waiting run can be continued. `none`: its runs have one turn."
    )
    waits: Waits = Field(description="What its runs may wait for.")
    transcript: Transcript = Field(description="Which part of the thread it gets.")
    output: OutputKind


class AgentOut(ResponseModel):
    """An agent."""

    id: str
    version: str
    model: str = Field(description="Name of its model; empty for agents on other servers.")
    endpoint: EndpointOut | None
    capabilities: CapabilitiesOut
    description: str
    tools: list[str]
    approval: list[str]
    background: list[str]
    handoffs: list[str] = Field(description="Agents that it may hand its run over to.")
    delegates: list[str] = Field(description="Agents that it may delegate tasks to.")
    max_rounds: int


class AgentToolOut(ResponseModel):
    """A tool of the agent."""

    name: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema of the arguments.")
    effect: Effect = Field(
        description="`read`: changes nothing. `idempotent`: running a call twice has the effect of once. `unsafe`: "
        "running it twice repeats the effect."
    )
    timeout: float | None = Field(
        description="Seconds after which a call ends; null without a limit."
    )
    needs_approval: bool = Field(description="Whether each call needs a person's approval.")
    approvers: ApproversOut | None = Field(
        description="Who may decide tickets about its calls; null if every holder of `decisions:write` may."
    )
    is_background: bool = Field(description="Whether its calls become background tasks.")


class AgentSkillOut(ResponseModel):
    """A skill of the agent: instructions that it loads when it needs them."""

    name: str
    description: str = Field(description="What it is for, as the model reads it.")
    allowed_tools: list[str] | None = Field(
        description="Names and globs of the tools that may be called while it is in use; null if all may."
    )


class AgentVersionOut(ResponseModel):
    """A version of the agent. Runs that were started with it are executed with it."""

    version: str
    created_at: Time = Field(description="When a server first had this version.")
    is_current: bool = Field(description="Whether new runs get it.")


class AgentDetailOut(AgentOut):
    """An agent with its tools, skills and versions."""

    tool_details: list[AgentToolOut] = Field(
        description="Its tools, with those that give work to other agents. Empty for agents on other servers."
    )
    skills: list[AgentSkillOut] = Field(description="Its skills, in their order.")
    versions: list[AgentVersionOut] = Field(
        description=f"The newest versions, at most {MAX_VERSIONS}, the newest first. Empty while the "
        "database doesn't respond."
    )
    plugins: list[str] = Field(description="Names of its plugins, in their order.")
    ticket_expires_in: float | None = Field(
        description="Seconds after which its tickets expire; null if they never do."
    )
    on_expiry: OnExpiry = Field(description="What happens when a ticket expires.")


@router.get("")
async def list_agents(
    ctx: ContextDep, principal: MayRead, paging: PagedAscending
) -> Page[AgentOut]:
    """List all agents, in the order of the agents file. `desc` begins with the last one."""
    query = paging.of(list="agents")
    found = numbered_page(list(ctx.agents.specs.values()), query.by_number())
    return Page[AgentOut].of(
        found,
        show=lambda each: _agent_out(ctx, each[1]),
        cursor=lambda each: cursors.encode_seq(query.name, each[0]),
    )


@router.get("/{agent_id}", responses=error_responses("agent_not_found"))
async def get_agent(agent_id: str, ctx: ContextDep, principal: MayRead) -> AgentDetailOut:
    """Get an agent with its tools, their parameters and effects, its skills and its versions."""
    spec = ctx.agents.specs.get(AgentId(agent_id))
    if spec is None:
        raise NotFound(
            "agent_not_found", f"There is no agent {agent_id[:200]!r}. GET /v1/agents lists all."
        )
    found = await ctx.agents.for_tenant(principal.tenant).at_version(spec.id, None)
    tools = found.tools.values() if isinstance(found, ResolvedAgent) else ()
    versions = await ctx.agents.versions(principal.tenant, spec.id, MAX_VERSIONS)
    return AgentDetailOut(
        **_agent_out(ctx, spec).__dict__,
        tool_details=[_tool_out(spec, tool.descriptor) for tool in tools],
        skills=[
            AgentSkillOut(
                name=one.name,
                description=one.description,
                allowed_tools=None if one.allowed_tools is None else list(one.allowed_tools),
            )
            for one in spec.skills
        ],
        versions=[
            AgentVersionOut(
                version=one.version,
                created_at=one.created_at,
                is_current=one.version == spec.version,
            )
            for one in versions
        ],
        plugins=list(spec.plugins),
        ticket_expires_in=spec.ticket_expires_in,
        on_expiry=spec.on_expiry,
    )


def _tool_out(spec: AgentSpec, tool: ToolDescriptor) -> AgentToolOut:
    approvers = spec.approvers.get(tool.name)
    return AgentToolOut(
        name=tool.name,
        description=tool.description,
        parameters=dict(tool.parameters),
        effect=tool.effect,
        timeout=tool.timeout,
        needs_approval=tool.name in spec.approval,
        approvers=None if approvers is None else ApproversOut.model_validate(approvers),
        is_background=tool.name in spec.background,
    )


def _agent_out(ctx: ServiceContext, spec: AgentSpec) -> AgentOut:
    return AgentOut(
        id=spec.id,
        version=ctx.agents.version(spec.id),
        model=spec.model,
        endpoint=None if spec.endpoint is None else EndpointOut.model_validate(spec.endpoint),
        capabilities=CapabilitiesOut.model_validate(ctx.agents.capabilities(spec.id)),
        description=spec.description,
        tools=list(spec.tools),
        approval=list(spec.approval),
        background=list(spec.background),
        handoffs=list(spec.handoffs),
        delegates=list(spec.delegates),
        max_rounds=spec.max_rounds,
    )
