"""Agents over HTTP: what may be started."""

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
    """How an agent is reached that is executed elsewhere. Where that is may be nobody's business."""

    backend: str
    target: str | None


class CapabilitiesOut(ResponseModel):
    """What a run of this agent can do. A request that needs more is refused with `backend_unsupported`,
    before anything is written."""

    cancellation: Cancellation = Field(description="How a run that is at work is stopped.")
    decisions: bool = Field(description="People can answer its tickets.")
    overrides: bool
    frontend_tools: bool
    limits: bool
    pause: bool = Field(description="A run of it can be paused while it executes.")
    continuation: Continuation = Field(description="`none`: a run of it has a single turn.")
    waits: Waits = Field(description="What it may wait for.")
    transcript: Transcript = Field(description="What of the thread it is given.")
    output: OutputKind


class AgentOut(ResponseModel):
    id: str
    version: str
    model: str = Field(description="Empty when another side executes the agent.")
    endpoint: EndpointOut | None
    capabilities: CapabilitiesOut
    description: str
    tools: list[str]
    approval: list[str]
    background: list[str]
    handoffs: list[str] = Field(description="Agents that it may give its run to.")
    delegates: list[str] = Field(description="Agents that it may give work to.")
    max_rounds: int


@router.get("")
async def list_agents(ctx: ContextDep, principal: MayRead) -> Page[AgentOut]:
    """Every agent that may be started, in the order of the agents file."""
    agents = [_agent_out(ctx, spec) for spec in ctx.agents.specs.values()]
    return Page[AgentOut](items=agents, next_cursor=None, has_more=False)


@router.get("/{agent_id}", responses=error_responses("agent_not_found"))
async def read_an_agent(agent_id: str, ctx: ContextDep, principal: MayRead) -> AgentOut:
    spec = ctx.agents.specs.get(AgentId(agent_id))
    if spec is None:
        raise NotFound("agent_not_found", f"There is no agent {agent_id[:200]!r}.")
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
