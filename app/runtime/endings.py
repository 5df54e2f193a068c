"""Endings: an activation finishes, suspends or is handed over; each is one commit with its events."""

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

import structlog
from msgspec import Struct

from app.domain.checkpoints import CheckpointAnswer, CheckpointSaved
from app.domain.errors import PluginFailed
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_finish import finish_done, finish_suspended
from app.domain.ids import TicketKey
from app.domain.json_values import without_none
from app.domain.runs.runs import (
    AWAITING_CHILDREN,
    AWAITING_EVENT,
    AWAITING_TASKS,
    LIMIT_REACHED,
    Done,
    RunRecord,
    Waiting,
    waiting_reason,
)
from app.domain.runs.terminations import Cancelled, Failed, NaturalEnd, Termination
from app.domain.threads.messages import LoggedMessage, Message, Role
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, Ticket, TicketKind
from app.domain.tools.tool_calls import CallState
from app.runtime.active_run import ActiveRun
from app.runtime.inference.partial_answers import take_partial_answer
from app.runtime.inference.structured_output import answered, invalid
from app.runtime.phases import call_run_end_hooks
from app.runtime.tool_calls.batch import ToolBatch
from app.runtime.tool_calls.new_calls import with_calls_declined

log = structlog.get_logger(__name__)


class RunFinished(Struct, frozen=True):
    """The run is done; its end is saved."""

    termination: Termination


class Suspended(Struct, frozen=True):
    """The run waits for decisions, tasks or a point in time, and needs no worker meanwhile."""


class HandedOver(Struct, frozen=True):
    """Another worker will continue; nothing was written for that."""


Ending: TypeAlias = RunFinished | Suspended | HandedOver


async def suspend_on_tickets(
    run: ActiveRun, batch: ToolBatch, still_open: Sequence[Ticket]
) -> bool:
    """Suspend the run on open tickets; False if one of them was decided meanwhile."""
    messages, events = batch.with_tickets()
    states = [*batch.changed.values(), *(each.state for each in batch.new_tickets)]
    return await save_suspension(
        run,
        _waiting_message([*still_open, *batch.opened]),
        still_open,
        batch.opened,
        messages=messages,
        events=events,
        completes_step=run.in_step,
        calls=tuple({state.call.id: state for state in states}.values()),
        applied=batch.applied_tickets,
    )


def _waiting_message(tickets: Sequence[Ticket]) -> str:
    kinds = {ticket.kind for ticket in tickets}
    if TicketKind.LIMIT in kinds:
        return LIMIT_REACHED
    if kinds <= ANSWERED_BY_PROGRAMS:
        return AWAITING_EVENT if TicketKind.EVENT in kinds else AWAITING_CHILDREN
    return "suspended"


async def save_suspension(
    run: ActiveRun,
    message: str,
    still_open: Sequence[Ticket],
    opened: Sequence[Ticket],
    *,
    messages: Sequence[Message] = (),
    events: Sequence[AgentEvent] = (),
    completes_step: bool = False,
    calls: Sequence[CallState] = (),
    applied: Sequence[TicketKey] = (),
) -> bool:
    """Suspend the run; False, with nothing saved, if it has nothing to wait for any more."""
    waiting = Waiting(waiting_reason(message), message)
    answer = await run.save(
        messages,
        state=waiting,
        completes_step=completes_step,
        events=events,
        calls=calls,
        applied=applied,
        opened=opened,
        finish=finish_suspended(run.record, waiting, [*still_open, *opened]),
    )
    return isinstance(answer, CheckpointSaved)


async def finish_or_suspend(
    run: ActiveRun, last: ToolBatch | None = None, stop: Termination | None = None
) -> Ending | None:
    """Finish after the last answer, or suspend while background tasks still run.

    None if an input has come that the model should read. The commit itself checks that, so no input can
    be missed.
    """
    ending: Ending | None = None
    if not (run.unread_inputs or run.open_tasks):
        ending = await _finish_naturally(run, last)
    if ending is None and stop is not None:
        ending = await finish(run, stop, last)
    if ending is None and last is not None:
        await last.save(completes_step=run.in_step, calls_settled=True)
    while ending is None and not run.unread_inputs:
        ending = await (_wait_for_tasks(run) if run.open_tasks else _finish_naturally(run))
    return ending


async def _finish_naturally(run: ActiveRun, last: ToolBatch | None = None) -> RunFinished | None:
    termination = await _call_run_end(run, _natural_end(run, last))
    answer = await _save_end(run, termination, last or ToolBatch(run))
    return RunFinished(termination) if isinstance(answer, CheckpointSaved) else None


def _natural_end(run: ActiveRun, last: ToolBatch | None) -> Termination:
    """The natural end, if the last answer has the format that the agent's output needs."""
    output = run.agent.output
    if output is None:
        return NaturalEnd()
    text = last_text(run.record, run.log, () if last is None else last.messages)
    value, problem = answered(output, text)
    return NaturalEnd() if value is not None else invalid(problem, text)


async def _wait_for_tasks(run: ActiveRun) -> Suspended | None:
    waiting = Waiting(waiting_reason(AWAITING_TASKS), AWAITING_TASKS)
    answer = await run.save(state=waiting, finish=finish_suspended(run.record, waiting, []))
    return Suspended() if isinstance(answer, CheckpointSaved) else None


async def finish(
    run: ActiveRun, termination: Termination, last: ToolBatch | None = None
) -> RunFinished:
    """Save the end of the run, with the last batch and `run_finish` in the same commit."""
    termination = await _call_run_end(run, termination)
    await _save_end(run, termination, last or ToolBatch(run))
    return RunFinished(termination)


async def _save_end(run: ActiveRun, termination: Termination, last: ToolBatch) -> CheckpointAnswer:
    partial = take_partial_answer(run, termination)
    messages = [*partial, *last.messages]
    response = last_text(run.record, run.log, messages)
    value = None
    if run.agent.output is not None and isinstance(termination, NaturalEnd):
        value, _ = answered(run.agent.output, response)
    state = Done(termination, run.clock.now(), response or None, value)
    return await run.save(
        messages,
        events=[*map(run.message_done, partial), *last.pending_events],
        applied=last.applied,
        state=state,
        completes_step=run.in_step,
        calls_settled=True,
        finish=finish_done(
            run.record,
            termination,
            without_none({"response": response, "structured_output": value}),
        ),
    )


async def _call_run_end(run: ActiveRun, termination: Termination) -> Termination:
    """Call the `run_end` hooks. A failing hook fails the run, unless it was cancelled or failed already."""
    try:
        await call_run_end_hooks(run)
    except PluginFailed as error:
        log.warning("plugin_failed", plugin=error.plugin, phase=error.phase, exc_info=True)
        if not isinstance(termination, Cancelled | Failed):
            return Failed("plugin_failed", run.redact(str(error)))
    return termination


async def cancel(run: ActiveRun) -> RunFinished:
    """Finish the run as cancelled."""
    return await finish(run, Cancelled(run.interruption.reason), close_open_calls(run))


async def fail(run: ActiveRun, code: str, detail: str) -> RunFinished:
    """Finish the run as failed, with the given error."""
    return await finish(run, Failed(code, run.redact(detail)), close_open_calls(run))


def close_open_calls(run: ActiveRun) -> ToolBatch:
    """Keep the model's unsaved answer, and report every open call. Each call needs a result, because the
    thread must accept the next message."""
    answer = run.unsaved_answer
    batch = ToolBatch(run) if answer is None else with_calls_declined(run, answer)
    for state in run.open_calls.values():
        batch.close(state)
    return batch


def last_text(
    record: RunRecord, log: Sequence[LoggedMessage], messages: Sequence[Message] = ()
) -> str:
    """The last text that the assistant wrote in the run: in the log or in the new messages."""
    own = (entry.message for entry in reversed(log) if entry.message.run_id == record.id)
    for message in chain(reversed(messages), own):
        if message.role is Role.ASSISTANT and message.text:
            return message.text
    return ""
