"""Endings: how an activation comes to its end, or to a rest; each is one commit, and said in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from app.domain.checkpoints import CheckpointAnswer, CheckpointSaved
from app.domain.errors import PluginFailed
from app.domain.events.run_events import AgentEvent
from app.domain.events.run_finish import finish_done, finish_suspended
from app.domain.ids import TicketKey
from app.domain.runs.runs import (
    AWAITING_CHILDREN,
    AWAITING_EVENT,
    AWAITING_TASKS,
    LIMIT_REACHED,
    Done,
    RunRecord,
    Waiting,
    status_of,
    waiting_reason,
)
from app.domain.runs.terminations import Cancelled, Failed, NaturalEnd, Termination, status_reason
from app.domain.threads.messages import LoggedMessage, Message, Role
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, Ticket, TicketKind
from app.domain.tools.tool_calls import CallState
from app.runtime.active_run import ActiveRun
from app.runtime.inference.partial_answers import take_partial_answer
from app.runtime.phases import call_run_end_hooks
from app.runtime.tool_calls.batch import ToolBatch
from app.runtime.tool_calls.new_calls import with_calls_declined

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run is done, and saved."""

    termination: Termination


@dataclass(frozen=True, slots=True)
class Suspended:
    """The run waits for people, for its tasks or for a moment, and holds nothing."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Another worker shall continue; nothing more was written."""


Ending: TypeAlias = RunFinished | Suspended | HandedOver


async def suspend_on_tickets(
    run: ActiveRun, batch: ToolBatch, still_open: Sequence[Ticket]
) -> bool:
    """Come to rest with open tickets; False when one of them was answered meanwhile."""
    messages, said = batch.with_tickets()
    states = [*batch.changed.values(), *(question.state for question in batch.new_tickets)]
    return await save_suspension(
        run,
        _waits_for([*still_open, *batch.opened]),
        still_open,
        batch.opened,
        messages=messages,
        said=said,
        completes_step=run.in_step,
        calls=tuple({state.call.id: state for state in states}.values()),
        applied=batch.applied_tickets,
    )


def _waits_for(asked: Sequence[Ticket]) -> str:
    kinds = {ticket.kind for ticket in asked}
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
    said: Sequence[AgentEvent] = (),
    completes_step: bool = False,
    calls: Sequence[CallState] = (),
    applied: Sequence[TicketKey] = (),
) -> bool:
    """Suspend the run; False, and nothing saved, when what it would wait for has come meanwhile."""
    waiting = Waiting(waiting_reason(message), message)
    answer = await run.save(
        messages,
        state=waiting,
        completes_step=completes_step,
        said=said,
        calls=calls,
        applied=applied,
        opened=opened,
        finish=finish_suspended(run.record, waiting, [*still_open, *opened]),
    )
    return isinstance(answer, CheckpointSaved)


async def finish_or_suspend(
    run: ActiveRun, last: ToolBatch | None = None, stop: Termination | None = None
) -> Ending | None:
    """The model has nothing more to do: end, or wait for tasks that still run.

    None when something has come in that it should read. Whether that is so is decided by the very
    commit that ends the run or lets it wait: nothing can come in between.
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
    termination = await _clean_up(run, NaturalEnd())
    answer = await _save_end(run, termination, last or ToolBatch(run))
    return RunFinished(termination) if isinstance(answer, CheckpointSaved) else None


async def _wait_for_tasks(run: ActiveRun) -> Suspended | None:
    waiting = Waiting(waiting_reason(AWAITING_TASKS), AWAITING_TASKS)
    answer = await run.save(state=waiting, finish=finish_suspended(run.record, waiting, []))
    return Suspended() if isinstance(answer, CheckpointSaved) else None


async def finish(
    run: ActiveRun, termination: Termination, last: ToolBatch | None = None
) -> RunFinished:
    """Save the end with what came last, and say it in the same commit."""
    termination = await _clean_up(run, termination)
    await _save_end(run, termination, last or ToolBatch(run))
    return RunFinished(termination)


async def _save_end(run: ActiveRun, termination: Termination, last: ToolBatch) -> CheckpointAnswer:
    messages = [*take_partial_answer(run, termination), *last.messages]
    response = last_words(run.record, run.log, messages)
    state = Done(termination, run.clock.now(), response or None)
    return await run.save(
        messages,
        said=last.pending_events,
        applied=last.applied,
        state=state,
        completes_step=run.in_step,
        calls_settled=True,
        finish=finish_done(
            run.record,
            termination,
            {
                "response": response,
                "status": status_of(state).value,
                "status_reason": status_reason(termination),
            },
        ),
    )


async def _clean_up(run: ActiveRun, termination: Termination) -> Termination:
    """Let plugins have their end. One that breaks is seen, but it doesn't undo a cancel or an error."""
    try:
        await call_run_end_hooks(run)
    except PluginFailed as error:
        log.warning("plugin_failed", plugin=error.plugin, phase=error.phase, exc_info=True)
        if not isinstance(termination, Cancelled | Failed):
            return Failed("plugin_failed", run.redact(str(error)))
    return termination


async def cancel(run: ActiveRun) -> RunFinished:
    """End because somebody wished it."""
    return await finish(run, Cancelled(run.interruption.reason), close_open_calls(run))


async def fail(run: ActiveRun, code: str, detail: str) -> RunFinished:
    """End because something broke: visibly, and in the same shape as every end."""
    return await finish(run, Failed(code, run.redact(detail)), close_open_calls(run))


def close_open_calls(run: ActiveRun) -> ToolBatch:
    """Keep what the model has said and nobody has saved, and give every call without a result one that says
    so: the thread must take the next message."""
    unfinished = run.unfinished
    batch = ToolBatch(run) if unfinished is None else with_calls_declined(run, unfinished)
    for state in run.open_calls.values():
        batch.close(state)
    return batch


def last_words(
    record: RunRecord, log: Sequence[LoggedMessage], messages: Sequence[Message] = ()
) -> str:
    """The last text that the assistant has written in a run: in the log, or in its new messages."""
    own = [entry.message for entry in log if entry.message.run_id == record.id]
    for message in reversed([*own, *messages]):
        if message.role is Role.ASSISTANT and message.text:
            return message.text
    return ""
