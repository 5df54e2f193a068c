"""Executes one call: retries it where that is safe, and collects its state changes."""

from contextlib import suppress
from datetime import datetime

import structlog
from msgspec import Struct

from app.clock import sleep
from app.domain.errors import OutcomeUnknown, OwnershipLost
from app.domain.json_values import Json, as_object
from app.domain.memories.memories import owner_for
from app.domain.runs.run_info import run_info
from app.domain.structs import replace
from app.domain.tickets.tickets import OUTCOME_UNKNOWN_ACTION, Ticket
from app.domain.tools.tool_calls import (
    CallState,
    CallStatus,
    ResultStatus,
    SuspensionRequest,
    ToolResult,
)
from app.runtime.active_run import ActiveRun
from app.runtime.ports.memory import Memory
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.runtime.state import Change, StateView
from app.runtime.tool_calls.call_events import CallEvents, CallSuspended, CallTickets
from app.runtime.tool_calls.call_questions import CallQuestions
from app.runtime.tool_calls.carried_replies import TicketReplies

FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 2.0
"""Pauses between two tries of a call; each is twice the one before."""

log = structlog.get_logger(__name__)


class Resumption(Struct, frozen=True):
    """The input of a suspended call that runs again, and the ticket by which a person approved it, if any."""

    ticket: Ticket | None
    resume_input: Json = None

    @property
    def was_approved(self) -> bool:
        return self.ticket is not None


class CallSpan(Struct, frozen=True):
    """When a call was handed to its tool, and how long that took, with all tries."""

    started_at: datetime
    seconds: float


class Executed(Struct, frozen=True):
    """A call's result and its state changes."""

    result: ToolResult
    changes: tuple[Change, ...] = ()
    span: CallSpan | None = None
    """When its tool ran; None if this process didn't run it."""

    @property
    def status(self) -> CallStatus:
        match self.result.status:
            case ResultStatus.SUCCESS:
                return CallStatus.SUCCEEDED
            case ResultStatus.ERROR:
                return CallStatus.FAILED
            case ResultStatus.PENDING:
                return CallStatus.SUSPENDED


async def execute(
    run: ActiveRun, state: CallState, snapshot: StateView, resumption: Resumption | None = None
) -> Executed:
    """Hand the call to its tool. Retry errors if the tool allows it, under the same idempotency key.

    Only the state changes of the last try count. The caller marks the call before and cancels it.
    """
    tool = run.agent.tools[state.call.name]
    tries_left = tool.descriptor.retries if tool.descriptor.effect.may_be_rerun else 0
    wait = FIRST_PAUSE_SECONDS
    started_at = run.clock.now()
    while True:
        executed = await _try(run, state, tool, snapshot, resumption)
        result = executed.result
        if result.status is not ResultStatus.ERROR or not result.may_be_retried or not tries_left:
            seconds = (run.clock.now() - started_at).total_seconds()
            return replace(executed, span=CallSpan(started_at, max(0.0, seconds)))
        tries_left -= 1
        log.info("tool_retried", tool=state.call.name, call_id=state.call.id, error=result.text)
        await sleep(wait)
        wait = min(2 * wait, MAX_PAUSE_SECONDS)


async def _try(
    run: ActiveRun,
    state: CallState,
    tool: Tool,
    snapshot: StateView,
    resumption: Resumption | None,
) -> Executed:
    async def wait_for_capacity() -> None:
        # A worker that lost the run is interrupted soon; the tool needn't handle that.
        with suppress(OwnershipLost):
            await run.events.wait_for_capacity()

    changes: list[Change] = []
    tickets = CallTickets(run.answers, state)
    context = replace(
        context_for(run, state, snapshot, resumption),
        change=lambda change: changes.append(run.state.checked(change)),
        tasks=run.tasks,
        wait_for_capacity=wait_for_capacity,
        events=CallEvents(tickets),
        questions=CallQuestions(tickets),
        carried=TicketReplies(tickets),
        files=run.tool_files,
        memories=_memory_of(run, state),
    )
    try:
        result = await tool.execute(as_object(state.effective_arguments) or {}, context)
    except CallSuspended:
        pass
    except OutcomeUnknown as unknown:
        return Executed(ToolResult.suspended(state.call.name, _outcome_unknown(unknown)))
    except Exception as error:  # a tool's code; a failing call must not fail its run
        log.warning("tool_failed", tool=state.call.name, call_id=state.call.id, exc_info=True)
        result = ToolResult.error(state.call.name, f"Execution failed: {run.redact(str(error))}")
    except BaseExceptionGroup as group:
        # The tool called `wait_for`, `approve` or `ask` within a task group.
        _, others = group.split((CallSuspended, Exception))
        if others is not None:
            raise
    if tickets.waiting is not None:
        # The call runs again when the answer has come, and makes its changes then.
        return Executed(ToolResult.suspended(state.call.name, tickets.waiting))
    if result.status is ResultStatus.ERROR:
        return Executed(result)
    return Executed(result, tuple(changes))


def _memory_of(run: ActiveRun, state: CallState) -> Memory | None:
    policy = run.agent.plugins.memory
    if policy is None or run.memories is None:
        return None
    agent_id = run.agent.spec.id
    owner = owner_for(policy, run_info(run.record), agent_id)
    return Memory(run.memories, owner, agent_id, state.idempotency_key)


def _outcome_unknown(why: OutcomeUnknown) -> SuspensionRequest:
    return SuspensionRequest(str(why), action=OUTCOME_UNKNOWN_ACTION)


def context_for(
    run: ActiveRun, state: CallState, snapshot: StateView, resumption: Resumption | None = None
) -> ToolContext:
    """The context of a call, without the means to change state or wait for events."""
    ticket = None if resumption is None else resumption.ticket
    return ToolContext(
        run=run_info(run.record),
        call_id=state.call.id,
        tool_name=state.call.name,
        idempotency_key=state.idempotency_key,
        emit=run.emit,
        redact=run.redact,
        agent=run.agent.spec,
        deps=run.agent.deps,
        resume_input=None if resumption is None else resumption.resume_input,
        suspension_id=None if ticket is None else ticket.name,
        suspension_reason=None if ticket is None else ticket.reason,
        snapshot=snapshot,
    )
