"""New runs: what a start asks for, checked and resolved, before it is known where it will run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from app.clock import new_id
from app.commands.runs.capabilities import require_supported
from app.context import ServiceContext
from app.domain.agents.capabilities import RootNeeds
from app.domain.errors import Invalid
from app.domain.ids import AgentId, RunId, Tenant, ThreadId
from app.domain.inference.options import NO_OPTIONS, InferenceOptions, options_to_json
from app.domain.json_values import JsonObject
from app.domain.principals import Principal
from app.domain.runs.runs import Lineage, NewRun, transport_in_request
from app.domain.threads.messages import Message
from app.runtime.agent import UnknownAgentVersion
from app.runtime.handoff import active_agent
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import threads
from app.tools.frontend import IN_REQUEST


class OnActive(StrEnum):
    """What to do when the thread is occupied."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    """The run that is there is cancelled; the new one stands in line behind those that do already."""
    ROLLBACK = "rollback"
    """As `interrupt`, and what it has added to the conversation doesn't count for those after it."""
    STEER = "steer"
    """The messages go to the run that is there."""


class IfThreadMissing(StrEnum):
    CREATE = "create"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """A start as a client asked for it; `digest` tells a repetition from another request.

    Without an agent, the thread goes on with the one that was last at work on it.
    """

    agent_id: AgentId | None
    thread_id: ThreadId
    run_id: RunId | None
    messages: tuple[Message, ...]
    on_active: OnActive
    if_thread_missing: IfThreadMissing
    metadata: JsonObject
    digest: str
    traceparent: str | None = None
    transport_request_id: str | None = None
    """The client's own id of the request."""
    ticket_policy: JsonObject | None = None
    """How long this run's tickets wait, and what happens then."""
    overrides: InferenceOptions = NO_OPTIONS
    limits: JsonObject = field(default_factory=dict)
    """How much the run may use, and what happens then."""
    frontend_tools: tuple[JsonObject, ...] = ()
    """What the client can do itself: name, description and parameters of each."""


async def agent_of_thread(connection: Connection, tenant: Tenant, request: StartRequest) -> AgentId:
    """Who was last at work; where that is to be rolled back, who was before."""
    thread = await threads.get(connection, tenant, request.thread_id)
    if thread is not None and thread.open_run_id and request.on_active is OnActive.ROLLBACK:
        occupant = await runs.get(connection, tenant, thread.open_run_id)
        if occupant is not None:
            return occupant.agent_id
    if thread is not None and thread.latest_run_id is not None:
        at_work = active_agent(await threads.state(connection, tenant, thread.id))
        if at_work is not None:
            return at_work[0]
        latest = await runs.get(connection, tenant, RunId(thread.latest_run_id))
        if latest is not None:
            return latest.agent_id
    raise Invalid(
        "agent_required", "No agent was at work on this thread yet: say which one with agent_id."
    )


def new_run(
    ctx: ServiceContext, principal: Principal, request: StartRequest, agent_id: AgentId
) -> NewRun:
    run_id = request.run_id or RunId(new_id())
    version = ctx.agents.version(agent_id)
    needs = RootNeeds(
        overrides=request.overrides != NO_OPTIONS,
        frontend_tools=bool(request.frontend_tools),
        limits=bool(request.limits),
    )
    require_supported(ctx, agent_id, needs)
    return NewRun(
        tenant=principal.tenant,
        id=run_id,
        thread_id=request.thread_id,
        agent_id=agent_id,
        agent_version=version,
        messages=request.messages,
        request={
            "origin": "User",
            "input_message_ids": [message.id for message in request.messages],
            "input_message_count": len(request.messages),
            **transport_in_request(request.transport_request_id),
            **({} if request.ticket_policy is None else {"ticket_policy": request.ticket_policy}),
            **_overrides(request),
            **request.limits,
            **({IN_REQUEST: list(request.frontend_tools)} if request.frontend_tools else {}),
        },
        request_digest=request.digest,
        metadata=request.metadata,
        started_by=principal.subject,
        lineage=Lineage(run_id),
        traceparent=request.traceparent,
    )


def _overrides(request: StartRequest) -> JsonObject:
    if request.overrides == NO_OPTIONS:
        return {}
    return {"overrides": options_to_json(request.overrides)}


async def check_names(ctx: ServiceContext, run: NewRun, offered: Sequence[JsonObject]) -> None:
    """A client's tool must not stand for one of the agent's own."""
    agent = await ctx.agents.resolve(run.tenant, run.agent_id, run.agent_version)
    own = () if isinstance(agent, UnknownAgentVersion) else agent.tools
    taken = sorted({each["name"] for each in offered} & set(own))
    if taken:
        raise Invalid(
            "frontend_tool_taken",
            f"The agent has tools of its own called {', '.join(taken)}. Rename the frontend tools.",
            names=taken,
        )
