"""What a start requests, and the new run that is made from it, checked and resolved."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from app.clock import new_id
from app.commands.runs.capabilities import require_supported
from app.commands.runs.replace_tail import find_tail
from app.context import ServiceContext
from app.domain.agents.capabilities import RootNeeds
from app.domain.errors import Invalid
from app.domain.ids import AgentId, MessageId, RunId, Tenant, ThreadId
from app.domain.inference.options import NO_OPTIONS, InferenceOptions, options_to_json
from app.domain.json_values import JsonObject
from app.domain.principals import Principal
from app.domain.runs.requested_answers import ANY_ANSWER, RequestedAnswer, answer_in_request
from app.domain.runs.runs import CONTEXT, Lineage, NewRun, transport_in_request
from app.domain.structs import replace
from app.domain.threads.messages import Message
from app.domain.threads.replacements import Replacement
from app.runtime.agent import UnknownAgentVersion
from app.runtime.handoff import active_agent
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import threads
from app.tools.frontend import REQUEST_KEY


class OnActive(StrEnum):
    """What to do when the thread is occupied."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    """The open run is cancelled; the new run is queued behind the runs that already wait."""
    ROLLBACK = "rollback"
    """Like `interrupt`; the messages that the open run has added are removed for later runs."""
    STEER = "steer"
    """The open run gets the messages."""


class IfThreadMissing(StrEnum):
    CREATE = "create"
    REJECT = "reject"


class StartRequest(Struct, frozen=True, kw_only=True):
    """A start as the client requested it; `digest` distinguishes a repetition from another request.

    Without `agent_id`, the thread's last active agent is used.
    """

    agent_id: AgentId | None
    thread_id: ThreadId
    run_id: RunId | None
    messages: tuple[Message, ...]
    on_active: OnActive
    if_thread_missing: IfThreadMissing
    metadata: JsonObject
    digest: str
    context: JsonObject | None = None
    """Data for the run's tools, which only a server may send."""
    thread_key: str | None = None
    """The key by which the request names the thread. A thread without a key gets it."""
    traceparent: str | None = None
    transport_request_id: str | None = None
    """The client's own id for the request."""
    ticket_policy: JsonObject | None = None
    """When this run's tickets expire, and what happens then."""
    overrides: InferenceOptions = NO_OPTIONS
    answer: RequestedAnswer = ANY_ANSWER
    """What is asked of the model's answers."""
    limits: JsonObject = {}
    """How much the run may use, and what happens at the limit."""
    frontend_tools: tuple[JsonObject, ...] = ()
    """Tools that the client executes: name, description and parameters of each."""
    chosen_ids: frozenset[MessageId] = frozenset()
    """The ids of messages that the client has chosen."""
    replaces: Replacement | None = None
    """From where on the run replaces the thread's messages."""


async def agent_of_thread(connection: Connection, tenant: Tenant, request: StartRequest) -> AgentId:
    """The thread's last active agent. With a rollback, the agent that the rolled-back run was started with."""
    if request.replaces is not None:
        tail = await find_tail(connection, tenant, request.thread_id, request.replaces)
        return tail.run.agent_id
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
        "agent_required", "No agent has worked on this thread yet. Name one with agent_id."
    )


def new_run(
    ctx: ServiceContext, principal: Principal, request: StartRequest, agent_id: AgentId
) -> NewRun:
    run_id = request.run_id or RunId(new_id())
    version = ctx.agents.version(agent_id)
    needs = RootNeeds(
        overrides=request.overrides != NO_OPTIONS
        or replace(request.answer, output=None) != ANY_ANSWER,
        frontend_tools=bool(request.frontend_tools),
        limits=bool(request.limits),
        structured_output=request.answer.output is not None,
        replaces=request.replaces is not None,
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
            **_named_messages(request.messages),
            **transport_in_request(request.transport_request_id),
            **({} if request.ticket_policy is None else {"ticket_policy": request.ticket_policy}),
            **({CONTEXT: request.context} if request.context else {}),
            **_overrides(request),
            **answer_in_request(request.answer),
            **request.limits,
            **({REQUEST_KEY: list(request.frontend_tools)} if request.frontend_tools else {}),
        },
        request_digest=request.digest,
        metadata=request.metadata,
        started_by=principal.subject,
        lineage=Lineage(run_id),
        traceparent=request.traceparent,
        thread_key=request.thread_key,
    )


def with_messages(run: NewRun, messages: tuple[Message, ...]) -> NewRun:
    """The run, started with these messages instead."""
    return replace(run, messages=messages, request={**run.request, **_named_messages(messages)})


def _named_messages(messages: Sequence[Message]) -> JsonObject:
    return {
        "input_message_ids": [message.id for message in messages],
        "input_message_count": len(messages),
    }


def _overrides(request: StartRequest) -> JsonObject:
    if request.overrides == NO_OPTIONS:
        return {}
    return {"overrides": options_to_json(request.overrides)}


async def check_names(ctx: ServiceContext, run: NewRun, request: StartRequest) -> None:
    """Refuse frontend tools that have the name of one of the agent's own tools, and tools that it hasn't."""
    offered, wanted = request.frontend_tools, request.answer.named_tools
    if not (offered or wanted):
        return
    agent = await ctx.agents.resolve(run.tenant, run.agent_id, run.agent_version)
    if isinstance(agent, UnknownAgentVersion):
        return
    own = agent.tools
    missing = sorted(wanted - set(own) - {each["name"] for each in offered})
    # Which tools MCP servers have is known when the run executes.
    if missing and not agent.spec.has_mcp_tools:
        raise Invalid(
            "tool_not_found",
            f"The agent has no tools called {', '.join(missing)}. It has: {', '.join(sorted(own)) or 'none'}.",
            names=missing,
        )
    taken = sorted({each["name"] for each in offered} & set(own))
    if taken:
        raise Invalid(
            "frontend_tool_taken",
            f"The agent has tools of its own called {', '.join(taken)}. Rename the frontend tools.",
            names=taken,
        )
