"""Endings: how an activation comes to its end, or to a rest; each is one commit, and said in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from app.domain.checkpoints import CheckpointAnswer, Saved
from app.domain.errors import PluginFailed
from app.domain.events import AgentEvent
from app.domain.finishes import finish_at_end, finish_at_rest
from app.domain.ids import TicketKey
from app.domain.messages import LoggedMessage, Message, Role
from app.domain.runs import (
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
from app.domain.terminations import Cancelled, Failed, NaturalEnd, Termination, status_reason
from app.domain.tickets import ANSWERED_BY_PROGRAMS, Ticket, TicketKind
from app.domain.tool_calls import CallState
from app.runtime.context import ActiveRun
from app.runtime.fresh_calls import with_calls_declined
from app.runtime.partial_answers import take_partial_answer
from app.runtime.phases import ask_at_the_end
from app.runtime.tool_round import ToolRound

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is done, and saved."""

    termination: Termination


@dataclass(frozen=True, slots=True)
class Suspended:
    """The run waits for people, for its tasks or for a moment, and holds nothing."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Another worker shall continue; nothing more was written."""


Ending: TypeAlias = Finished | Suspended | HandedOver


async def suspend(run: ActiveRun, round_: ToolRound, still_open: Sequence[Ticket]) -> bool:
    """Come to rest with open tickets; False when one of them was answered meanwhile."""
    messages, said = round_.with_questions()
    states = [*round_.changed.values(), *(question.state for question in round_.questions)]
    return await rest(
        run,
        _waits_for([*still_open, *round_.opened]),
        still_open,
        round_.opened,
        messages=messages,
        said=said,
        completes_step=run.in_step,
        calls=tuple({state.call.id: state for state in states}.values()),
        applied=round_.used,
    )


def _waits_for(asked: Sequence[Ticket]) -> str:
    kinds = {ticket.kind for ticket in asked}
    if TicketKind.LIMIT in kinds:
        return LIMIT_REACHED
    if kinds <= ANSWERED_BY_PROGRAMS:
        return AWAITING_EVENT if TicketKind.EVENT in kinds else AWAITING_CHILDREN
    return "suspended"


async def rest(
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
        finish=finish_at_rest(run.record, waiting, [*still_open, *opened]),
    )
    return isinstance(answer, Saved)


async def come_to_rest(
    run: ActiveRun, last: ToolRound | None = None, stop: Termination | None = None
) -> Ending | None:
    """The model has nothing more to do: end, or wait for tasks that still run.

    None when something has come in that it should read. Whether that is so is decided by the very
    commit that ends the run or lets it wait: nothing can come in between.
    """
    ending: Ending | None = None
    if not (run.unread_inputs or run.open_tasks):
        ending = await _end_by_itself(run, last)
    if ending is None and stop is not None:
        ending = await finish(run, stop, last)
    if ending is None and last is not None:
        await last.save(completes_step=run.in_step, calls_settled=True)
    while ending is None and not run.unread_inputs:
        ending = await (_wait_for_tasks(run) if run.open_tasks else _end_by_itself(run))
    return ending


async def _end_by_itself(run: ActiveRun, last: ToolRound | None = None) -> Finished | None:
    termination = await _clean_up(run, NaturalEnd())
    answer = await _save_end(run, termination, last or ToolRound(run))
    return Finished(termination) if isinstance(answer, Saved) else None


async def _wait_for_tasks(run: ActiveRun) -> Suspended | None:
    waiting = Waiting(waiting_reason(AWAITING_TASKS), AWAITING_TASKS)
    answer = await run.save(state=waiting, finish=finish_at_rest(run.record, waiting, []))
    return Suspended() if isinstance(answer, Saved) else None


async def finish(
    run: ActiveRun, termination: Termination, last: ToolRound | None = None
) -> Finished:
    """Save the end with what came last, and say it in the same commit."""
    termination = await _clean_up(run, termination)
    await _save_end(run, termination, last or ToolRound(run))
    return Finished(termination)


async def _save_end(run: ActiveRun, termination: Termination, last: ToolRound) -> CheckpointAnswer:
    messages = [*take_partial_answer(run, termination), *last.messages]
    response = last_words(run.record, run.log, messages)
    state = Done(termination, run.clock.now(), response or None)
    return await run.save(
        messages,
        said=last.said,
        applied=last.applied,
        state=state,
        completes_step=run.in_step,
        calls_settled=True,
        finish=finish_at_end(
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
        await ask_at_the_end(run)
    except PluginFailed as error:
        log.warning("plugin_failed", plugin=error.plugin, phase=error.phase, exc_info=True)
        if not isinstance(termination, Cancelled | Failed):
            return Failed("plugin_failed", run.redact(str(error)))
    return termination


async def cancel(run: ActiveRun) -> Finished:
    """End because somebody wished it."""
    return await finish(run, Cancelled(run.interruption.reason), loose_ends(run))


async def fail(run: ActiveRun, code: str, detail: str) -> Finished:
    """End because something broke: visibly, and in the same shape as every end."""
    return await finish(run, Failed(code, run.redact(detail)), loose_ends(run))


def loose_ends(run: ActiveRun) -> ToolRound:
    """Keep what the model has said and nobody has saved, and give every call without a result one that says
    so: the thread must take the next message."""
    unfinished = run.unfinished
    round_ = ToolRound(run) if unfinished is None else with_calls_declined(run, unfinished)
    for state in run.open_calls.values():
        round_.close(state)
    return round_


def last_words(
    record: RunRecord, log: Sequence[LoggedMessage], messages: Sequence[Message] = ()
) -> str:
    """The last text that the assistant has written in a run: in the log, or in its new messages."""
    own = [entry.message for entry in log if entry.message.run_id == record.id]
    for message in reversed([*own, *messages]):
        if message.role is Role.ASSISTANT and message.text:
            return message.text
    return ""
