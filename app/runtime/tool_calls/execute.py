"""One call in the hands of its tool: tried again where that is safe, its wishes for the state kept apart."""

from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from app.clock import sleep
from app.domain.errors import OwnershipLost
from app.domain.ids import CallId
from app.domain.json_values import Json, as_object
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState, CallStatus, ResultStatus, ToolResult
from app.runtime.active_run import ActiveRun
from app.runtime.ports import Tool, ToolContext
from app.runtime.state import Change, StateView
from app.runtime.tool_calls.call_events import CallEvents, CallSuspended

FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 2.0
"""Between two tries of a call, in seconds; each pause is twice the one before."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Resumption:
    """What lets a call run that was suspended: the ticket by which a person has let it pass, if any."""

    ticket: Ticket | None
    resume_input: Json = None

    @property
    def was_approved(self) -> bool:
        return self.ticket is not None


@dataclass(frozen=True, slots=True)
class Executed:
    """What a call came to, with the changes of state that go with its result."""

    result: ToolResult
    changes: tuple[Change, ...] = ()

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
    """Hand the call to its tool, again while it fails and may be repeated: under the same key.

    Only what the last try has asked for counts. The caller has marked the call and breaks it off.
    """
    tool = run.agent.tools[state.call.name]
    tries_left = tool.descriptor.retries if tool.descriptor.effect.may_be_rerun else 0
    wait = FIRST_PAUSE_SECONDS
    while True:
        executed = await _try(run, state, tool, snapshot, resumption)
        result = executed.result
        if result.status is not ResultStatus.ERROR or not result.may_be_retried or not tries_left:
            return executed
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
    async def room() -> None:
        # Whoever has lost the run is broken off; until then its tool needn't know.
        with suppress(OwnershipLost):
            await run.events.wait_for_capacity()

    changes: list[Change] = []
    events = CallEvents(run.answers, state)
    context = replace(
        context_for(run, state, snapshot, resumption),
        change=lambda change: changes.append(run.state.checked(change)),
        tasks=run.tasks,
        wait_for_capacity=room,
        events=events,
    )
    try:
        result = await tool.execute(as_object(state.effective_arguments) or {}, context)
    except CallSuspended:
        pass
    except Exception as error:  # whoever wrote the tool; no call may take its run along
        log.warning("tool_raised", tool=state.call.name, call_id=state.call.id, exc_info=True)
        result = ToolResult.error(state.call.name, f"Execution failed: {run.redact(str(error))}")
    except BaseExceptionGroup as group:
        # The tool has waited within a task group.
        _, others = group.split((CallSuspended, Exception))
        if others is not None or events.waiting is None:
            raise
    if events.waiting is not None:
        # It runs again once the event has come, and asks for its changes then.
        return Executed(ToolResult.suspended(state.call.name, events.waiting))
    if result.status is ResultStatus.ERROR:
        return Executed(result)
    return Executed(result, tuple(changes))


def context_for(
    run: ActiveRun, state: CallState, snapshot: StateView, resumption: Resumption | None = None
) -> ToolContext:
    """What a tool may know of a call, without any way to change something."""
    lineage = run.record.lineage
    ticket = None if resumption is None else resumption.ticket
    return ToolContext(
        run_id=run.record.id,
        thread_id=run.record.thread_id,
        call_id=state.call.id,
        tool_name=state.call.name,
        idempotency_key=state.idempotency_key,
        emit=run.emit,
        redact=run.redact,
        agent=run.agent.spec,
        resume_input=None if resumption is None else resumption.resume_input,
        suspension_id=None if ticket is None else ticket.name,
        suspension_reason=None if ticket is None else ticket.reason,
        snapshot=snapshot,
        parent_run_id=lineage.parent_run_id,
        parent_call_id=None if lineage.parent_call_id is None else CallId(lineage.parent_call_id),
    )
