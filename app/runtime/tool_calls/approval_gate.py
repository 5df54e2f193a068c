"""The gate: decides whether a call may run, right before it would.

It checks in this order:

1. The tool exists, the model has seen it, the skill in use allows it, and the arguments fit its schema.
   Searches for tools are answered.
2. The plugins, the tool's own condition, and the agent's `approval` list.
3. Whether it is a call of a frontend tool, a delegate or a background tool.
4. The limit of tool calls.

Of the plugins' requests `Block` comes first, then `Suspend`, `WaitFor` and `SetResult`. Of two equal
requests that of the earlier plugin counts.
"""

from functools import partial
from typing import TypeAlias, TypeVar

import structlog
from msgspec import Struct

from app.domain.children.child_runs import delegate_tool_name
from app.domain.ids import AgentId
from app.domain.json_values import Json, as_object
from app.domain.rules.rules import Behavior, decide_by_rules, denied_by_rule
from app.domain.runs.limits import OnLimit
from app.domain.structs import replace
from app.domain.threads.messages import ToolCall
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.tool_calls import (
    CallState,
    CallStatus,
    ResumeMode,
    SuspensionRequest,
    ToolResult,
)
from app.runtime.active_run import ActiveRun
from app.runtime.phases import HookRequests, call_hooks
from app.runtime.plugins import (
    APPROVAL_ACTION,
    PERMISSION,
    Block,
    Phase,
    SetResult,
    Suspend,
    WaitFor,
)
from app.runtime.ports.tools import NeedsApproval
from app.runtime.skills.refused_calls import answer_to_call_beside_skill
from app.runtime.state import Change
from app.runtime.tool_calls.call_events import gate_wait, received_at_gate
from app.runtime.tool_calls.execute import context_for
from app.runtime.tool_calls.tool_search import answer_to_unshown_call, search_answer

R = TypeVar("R", Block, Suspend, SetResult)

log = structlog.get_logger(__name__)


class CallRefused(Struct, frozen=True):
    """The call can't run; `result` is its error."""

    result: ToolResult
    changes: tuple[Change, ...] = ()


class CallAnswered(Struct, frozen=True):
    """The call doesn't run, because a plugin or the search for tools gave its result."""

    result: ToolResult
    changes: tuple[Change, ...] = ()


class MustAsk(Struct, frozen=True):
    """The call waits for a person's decision or for an event."""

    request: SuspensionRequest
    kind: TicketKind


class CallForbidden(Struct, frozen=True):
    """The call doesn't run, and the run ends."""

    reason: str


class AsTask(Struct, frozen=True):
    """The call becomes a background task."""


class AsChild(Struct, frozen=True):
    """The call starts a run of another agent. The call waits for it, or the background task does."""

    agent_id: AgentId
    in_background: bool


class OverLimit(Struct, frozen=True):
    """The run's limit of tool calls is reached: the call waits for a higher limit, or the run ends."""

    waits: bool


Verdict: TypeAlias = (
    CallRefused | CallAnswered | MustAsk | CallForbidden | AsTask | AsChild | OverLimit
)
"""Why a call doesn't run here. A call that may run has no verdict."""


def ends_the_run(verdict: Verdict) -> bool:
    """Whether the calls behind this one are skipped."""
    return isinstance(verdict, CallForbidden) or (
        isinstance(verdict, OverLimit) and not verdict.waits
    )


async def gate_call(
    run: ActiveRun,
    state: CallState,
    *,
    was_approved: bool = False,
    resume_input: Json = None,
    is_counted: bool = False,
) -> Verdict | None:
    """Why the call may not run here, or None. With `is_counted` the limit has counted it before."""
    is_new = state.status is CallStatus.PENDING
    if is_new and (unshown := answer_to_unshown_call(run, state)) is not None:
        return CallRefused(unshown[0], (unshown[1],))
    if is_new and (refused := answer_to_call_beside_skill(run, state)) is not None:
        return CallRefused(refused)
    refusal = _refusal(run, state)
    if refusal is not None:
        return CallRefused(refusal)
    if (answer := search_answer(run, state)) is not None:
        return CallAnswered(answer[0], (answer[1],))
    requests = await call_hooks(
        run,
        Phase.TOOL_GATE,
        call=with_effective_arguments(state),
        tool=run.agent.tools[state.call.name].descriptor,
        was_approved=was_approved,
        resume_input=resume_input,
        received=partial(received_at_gate, run.answers, state),
    )
    verdict = await _verdict_of_plugins(run, requests, state)
    if verdict is None and not was_approved:
        verdict = await _verdict_of_tool(run, state)
    verdict = verdict or _verdict_of_agent(run, state, was_approved)
    would_run = verdict is None or isinstance(verdict, AsTask | AsChild)
    if would_run and not is_counted and not run.usage_meter.reserve_call(state.call.id):
        return OverLimit(waits=run.usage_meter.limits.on_limit is OnLimit.ASK)
    return verdict


def with_effective_arguments(state: CallState) -> ToolCall:
    """The call with the arguments that it runs with: a person may have edited them."""
    return replace(state.call, arguments=state.effective_arguments)


def _refusal(run: ActiveRun, state: CallState) -> ToolResult | None:
    name = state.call.name
    tool = run.agent.tools.get(name)
    if tool is None:
        return ToolResult.error(name, f"tool '{name}' not found")
    problem = tool.invalid_arguments(state.effective_arguments)
    return None if problem is None else ToolResult.error(name, f"Invalid arguments: {problem}")


async def _verdict_of_plugins(
    run: ActiveRun, requests: HookRequests, state: CallState
) -> Verdict | None:
    if (block := _first(requests, Block, state)) is not None:
        return CallForbidden(block.reason)
    if (suspend := _first(requests, Suspend, state)) is not None:
        return MustAsk(suspend.request, TicketKind.APPROVAL)
    for wait in requests.all_of(WaitFor):
        if await received_at_gate(run.answers, state, wait.name, wait.key) is None:
            return MustAsk(gate_wait(wait), TicketKind.EVENT)
    if (given := _first(requests, SetResult, state)) is not None:
        return CallAnswered(replace(given.result, tool_name=state.call.name))
    return None


async def _verdict_of_tool(run: ActiveRun, state: CallState) -> Verdict | None:
    """The tool's own condition for approval. A rule of the agents file can't lift it, but a remembered one does."""
    name, tool = state.call.name, run.agent.tools[state.call.name]
    if not (isinstance(tool, NeedsApproval) and tool.needs_approval):
        return None
    arguments = as_object(state.effective_arguments) or {}
    async with run.interruption.interruptible():
        question = await tool.approval_question(
            dict(arguments), context_for(run, state, run.state.snapshot)
        )
    if question is None:
        return None
    rule = decide_by_rules(
        name, arguments, await run.remembered_rules(), tool.descriptor.parameters
    )
    match None if rule is None else rule.behavior:
        case Behavior.ALLOW:
            return None
        case Behavior.DENY:
            return CallAnswered(ToolResult.error(name, denied_by_rule(rule)))
        case _:
            return MustAsk(approval_of_call(state.call, question), TicketKind.APPROVAL)


def approval_of_call(call: ToolCall, question: str) -> SuspensionRequest:
    return SuspensionRequest(question, action=APPROVAL_ACTION, suspension_id=f"perm_{call.id}")


def _first(requests: HookRequests, kind: type[R], state: CallState) -> R | None:
    found = requests.all_of(kind)
    if len(found) > 1:
        log.warning(
            "gate_requests_ignored",
            request=kind.__name__,
            tool=state.call.name,
            call_id=state.call.id,
            used=repr(found[0]),
        )
    return found[0] if found else None


def _verdict_of_agent(run: ActiveRun, state: CallState, was_approved: bool) -> Verdict | None:
    name, call_id = state.call.name, state.call.id
    has_permission_plugin = any(plugin.name == PERMISSION for plugin in run.agent.plugins.plugins)
    if name in run.agent.spec.approval and not (has_permission_plugin or was_approved):
        question = f"Tool '{name}' suspended: awaiting approval"
        return MustAsk(approval_of_call(state.call, question), TicketKind.APPROVAL)
    if run.agent.tools[name].descriptor.is_frontend:
        return MustAsk(
            SuspensionRequest(
                f"Frontend tool '{name}' requires client execution",
                action=f"tool:{name}",
                resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
                response_schema=run.agent.tools[name].descriptor.response_schema,
                suspension_id=f"suspend_{call_id}",
            ),
            TicketKind.FRONTEND,
        )
    in_background = name in run.agent.spec.background
    for target in run.agent.spec.delegates:
        if name == delegate_tool_name(target):
            return AsChild(target, in_background)
    return AsTask() if in_background else None
