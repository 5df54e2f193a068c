"""Routes of agents."""

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import Field

from app.api.schemas.common import Page, ResponseModel
from app.context import ServiceContext
from app.domain.agents.capabilities import Cancellation, Continuation, OutputKind, Transcript, Waits
from app.domain.agents.specs import AgentSpec
from app.domain.errors import NotFound
from app.domain.ids import AgentId
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses

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
    pause: bool = Field(description="Whether an executing run can be paused.")
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


@router.get("")
async def list_agents(ctx: ContextDep, principal: MayRead) -> Page[AgentOut]:
    """List all agents, in the order of the agents file."""
    agents = [_agent_out(ctx, spec) for spec in ctx.agents.specs.values()]
    return Page[AgentOut](items=agents, next_cursor=None, has_more=False)


@router.get("/{agent_id}", responses=error_responses("agent_not_found"))
async def get_agent(agent_id: str, ctx: ContextDep, principal: MayRead) -> AgentOut:
    """Get an agent."""
    spec = ctx.agents.specs.get(AgentId(agent_id))
    if spec is None:
        raise NotFound(
            "agent_not_found", f"There is no agent {agent_id[:200]!r}. GET /v1/agents lists all."
        )
    return _agent_out(ctx, spec)


def _agent_out(ctx: ServiceContext, spec: AgentSpec) -> AgentOut:
    return AgentOut(
        id=spec.id,
        version=ctx.agents.version(spec.id),
        model=spec.model,
        endpoint=None
        if spec.endpoint is None
        else EndpointOut(backend=spec.endpoint.backend, target=spec.endpoint.target),
        capabilities=CapabilitiesOut(**asdict(ctx.agents.capabilities(spec.id))),
        description=spec.description,
        tools=list(spec.tools),
        approval=list(spec.approval),
        background=list(spec.background),
        handoffs=list(spec.handoffs),
        delegates=list(spec.delegates),
        max_rounds=spec.max_rounds,
    )
