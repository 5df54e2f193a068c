"""The gate: whether a call may run, asked right before it would.

First whether it can run at all, then the plugins, then the agent's own list of what needs approval and
the tools that only a client can carry out, and at last whether the run may make another call. Of what
plugins ask for a block outweighs a question, that a wait for an event, and that a result that is given in
place of the call's; among equals the first plugin counts.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

import structlog

from app.domain.children.child_runs import delegate_tool_name
from app.domain.ids import AgentId
from app.domain.json_values import Json
from app.domain.runs.limits import OnLimit
from app.domain.threads.messages import ToolCall
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.tool_calls import CallState, ResumeMode, SuspensionRequest, ToolResult
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
from app.runtime.tool_calls.call_events import gate_wait, received_at_gate

R = TypeVar("R", Block, Suspend, SetResult)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CallRefused:
    """It can't be run: this is the error that it gets."""

    result: ToolResult


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """It isn't run: somebody has given the result in its place."""

    result: ToolResult


@dataclass(frozen=True, slots=True)
class MustAsk:
    """A person has to be asked first, or an event has to come."""

    request: SuspensionRequest
    kind: TicketKind


@dataclass(frozen=True, slots=True)
class CallForbidden:
    """It isn't run, and the run ends over it."""

    reason: str


@dataclass(frozen=True, slots=True)
class AsTask:
    """It runs, but not here: it goes on by itself as a background task."""


@dataclass(frozen=True, slots=True)
class AsChild:
    """It is work for another agent, in a run of its own that this call waits for, or its run."""

    agent_id: AgentId
    in_background: bool


@dataclass(frozen=True, slots=True)
class OverLimit:
    """The run has made as many calls as it may: this one waits until it may make more, or the run ends."""

    waits: bool


Verdict: TypeAlias = (
    CallRefused | CallAnswered | MustAsk | CallForbidden | AsTask | AsChild | OverLimit
)
"""Why a call doesn't run here; one that may has none."""


def ends_the_run(verdict: Verdict) -> bool:
    """No call behind this one is looked at any more."""
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
    """Why a call may not run as it is, if it may not. One that has been with its tool before is counted
    already."""
    refusal = _refusal(run, state)
    if refusal is not None:
        return CallRefused(refusal)
    asked = await call_hooks(
        run,
        Phase.TOOL_GATE,
        call=with_effective_arguments(state),
        was_approved=was_approved,
        resume_input=resume_input,
        received=partial(received_at_gate, run.answers, state),
    )
    verdict = await _of_plugins(run, asked, state) or _of_agent(run, state, was_approved)
    would_run = verdict is None or isinstance(verdict, AsTask | AsChild)
    if would_run and not is_counted and not run.usage_meter.raise_once(state.call.id):
        return OverLimit(waits=run.usage_meter.limits.on_limit is OnLimit.ASK)
    return verdict


def with_effective_arguments(state: CallState) -> ToolCall:
    """The call as plugins see it: a person may have changed its arguments."""
    return replace(state.call, arguments=state.effective_arguments)


def _refusal(run: ActiveRun, state: CallState) -> ToolResult | None:
    name = state.call.name
    tool = run.agent.tools.get(name)
    if tool is None:
        return ToolResult.error(name, f"tool '{name}' not found")
    wrong = tool.invalid_arguments(state.effective_arguments)
    return None if wrong is None else ToolResult.error(name, f"Invalid arguments: {wrong}")


async def _of_plugins(run: ActiveRun, asked: HookRequests, state: CallState) -> Verdict | None:
    if (block := _first(asked, Block, state)) is not None:
        return CallForbidden(block.reason)
    if (suspend := _first(asked, Suspend, state)) is not None:
        return MustAsk(suspend.request, TicketKind.APPROVAL)
    for wait in asked.all_of(WaitFor):
        if await received_at_gate(run.answers, state, wait.name, wait.key) is None:
            return MustAsk(gate_wait(wait), TicketKind.EVENT)
    if (given := _first(asked, SetResult, state)) is not None:
        return CallAnswered(replace(given.result, tool_name=state.call.name))
    return None


def _first(asked: HookRequests, kind: type[R], state: CallState) -> R | None:
    wishes = asked.all_of(kind)
    if len(wishes) > 1:
        log.warning(
            "several_wishes_at_the_gate",
            wish=kind.__name__,
            tool=state.call.name,
            call_id=state.call.id,
            counted=repr(wishes[0]),
        )
    return wishes[0] if wishes else None


def _of_agent(run: ActiveRun, state: CallState, was_approved: bool) -> Verdict | None:
    name, call_id = state.call.name, state.call.id
    is_judged = any(plugin.name == PERMISSION for plugin in run.agent.plugins.plugins)
    if name in run.agent.spec.approval and not (is_judged or was_approved):
        return MustAsk(
            SuspensionRequest(
                f"Tool '{name}' suspended: awaiting approval",
                action=APPROVAL_ACTION,
                suspension_id=f"perm_{call_id}",
            ),
            TicketKind.APPROVAL,
        )
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
