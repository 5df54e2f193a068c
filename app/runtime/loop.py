"""The loop: advances one run from where it stands to where it must stop.

    start or continue ─► answers to tickets ─► [ step: infer ─► tools ]* ─► finish | suspend | hand over

The same path whoever listens and wherever it begins. Each turn of it ends in a commit; what happens
between two commits may be lost and is done again, except what has been marked as begun.
"""

from typing import assert_never

from app import telemetry
from app.domain.errors import OwnershipLost
from app.domain.events.run_events import RunStart, StepStart, StreamReset
from app.domain.runs.identity import run_identity
from app.domain.runs.limits import Limit
from app.domain.runs.rate_limits import TimedPause
from app.domain.runs.terminations import MAX_ROUNDS, Stopped, Termination
from app.domain.threads.messages import Message, Role, Text, Visibility
from app.domain.tickets.tickets import TicketStatus
from app.domain.tools.tool_calls import CallState
from app.runtime.active_run import ActiveRun
from app.runtime.cancellation import Interrupted, InterruptReason
from app.runtime.endings import (
    Ending,
    HandedOver,
    RunFinished,
    Suspended,
    cancel,
    close_open_calls,
    fail,
    finish,
    finish_or_suspend,
    suspend_on_tickets,
)
from app.runtime.handoff import activate_agent, hand_off_if_requested, handoff_change
from app.runtime.inference.infer import Reply, infer
from app.runtime.inference.partial_answers import partial_answer
from app.runtime.limits import apply_raises, at_the_limit, check_limits, wall_clock_limit
from app.runtime.phases import HookRequests, call_hooks
from app.runtime.plugins import Phase
from app.runtime.resume import apply_decisions, continue_interrupted_calls, resume_held_calls
from app.runtime.run_tool_calls import run_tool_calls
from app.runtime.state import ChangeBatch
from app.runtime.tool_calls.background import has_answered
from app.runtime.tool_calls.batch import INTERRUPTIONS, ToolBatch
from app.runtime.tool_calls.new_calls import new_calls, with_calls_declined
from app.runtime.waits.pauses import pause_if_requested
from app.runtime.waits.rate_limits import wait_for_pause


async def advance(run: ActiveRun) -> Ending:
    """Execute a claimed run until it is done, must wait, or is wanted elsewhere."""
    try:
        return await _advance(run)
    except Interrupted as interrupted:
        match interrupted.reason:
            case InterruptReason.CANCEL:
                return await cancel(run)
            case InterruptReason.HAND_OVER:
                return HandedOver()
            case InterruptReason.OUT_OF_TIME:
                return await at_the_limit(run, Limit.WALL_SECONDS)
            case InterruptReason.ABANDON:
                raise OwnershipLost(run.record.id) from None
            case _:
                assert_never(interrupted.wish)


async def _advance(run: ActiveRun) -> Ending:
    _begin(run)
    activate_agent(run)
    run.interruption.check()
    if (ending := await apply_raises(run)) is not None:
        return ending
    if (ending := await pause_if_requested(run)) is not None:
        return ending
    with wall_clock_limit(run):
        return await _go_on(run)


async def _go_on(run: ActiveRun) -> Ending:
    if (ending := await _take_up(run)) is not None:
        return ending
    if (ending := await _stop_or_wait(run, await call_hooks(run, Phase.RUN_START))) is not None:
        return ending
    if has_answered(run) and (ending := await finish_or_suspend(run)) is not None:
        return ending
    while True:
        run.interruption.check()
        if (ending := await pause_if_requested(run)) is not None:
            return ending
        # An answer that a wait has interrupted is completed before anything new is read.
        while run.unread_inputs and partial_answer(run) is None:
            await run.read_inbox()
            # What was to be read may have been taken back: then there is nothing new to answer.
            if has_answered(run) and (ending := await finish_or_suspend(run)) is not None:
                return ending
        if (blocked := await hand_off_if_requested(run)) is not None:
            return await finish(run, blocked)
        if (ending := await _step(run)) is not None:
            return ending


# --- beginnings -----------------------------------------------------------------------------------


def _begin(run: ActiveRun) -> None:
    """Open a new activation, or void what a lost worker left half said and go on in the old one."""
    if run.start.continues:
        run.in_step = run.start.step_begun
        if run.in_step and not _calls_of_step(run):
            run.emit(StreamReset("takeover"))
        return
    run.emit(RunStart(run_identity(run.record), run.record.lineage.parent_run_id))
    if _calls_of_step(run):
        _begin_step(run)


def _calls_of_step(run: ActiveRun) -> list[CallState]:
    """The calls of a step whose message is in the log and that isn't completed."""
    return [state for state in run.start.calls if state.step_index == run.steps]


async def _take_up(run: ActiveRun) -> Ending | None:
    """Deal with calls that were left without a result: of a step cut short, or answered by people."""
    batch = ToolBatch(run)
    if run.in_step and (calls := _calls_of_step(run)):
        await run_tool_calls(batch, calls)
        return await _end_of_step(run, batch)
    if not run.open_calls:
        return None
    await continue_interrupted_calls(run, batch)
    await resume_held_calls(run, batch)
    while True:
        await apply_decisions(run, batch)
        if batch.stop is not None:
            await batch.save()
            return await finish(run, batch.stop, close_open_calls(run))
        waiting_for = [ticket for ticket in run.tickets if ticket.status is TicketStatus.OPEN]
        if not (waiting_for or batch.opened):
            await batch.save(calls_settled=True)
            return None
        if await suspend_on_tickets(run, batch, waiting_for):
            return Suspended()
        fresh = await run.answers.unapplied()
        run.tickets = [ticket for ticket in fresh if ticket.id not in batch.applied_tickets]


# --- a step ---------------------------------------------------------------------------------------


async def _step(run: ActiveRun) -> Ending | None:
    """One inference and the calls it asks for; None when the loop goes on."""
    if not run.in_step:
        if (ending := await _before_another(run)) is not None:
            return ending
        _begin_step(run)
    asked = await call_hooks(run, Phase.BEFORE_INFERENCE)
    if (ending := await _stop_or_wait(run, asked)) is not None:
        return ending
    run.compaction.consider(run.record.id, run.agent, run.log, run.state.snapshot)
    reply = await infer(run, asked)
    if isinstance(reply, TimedPause):
        return await wait_for_pause(run, reply)
    said = _assistant_message(run, reply)
    run.unfinished = said
    asked = await call_hooks(run, Phase.AFTER_INFERENCE, answer=said)
    if asked.stop is not None:
        return await finish(run, asked.stop, with_calls_declined(run, said))
    note = _note_of_vain_calls(run, reply)
    if reply.calls:
        calls = new_calls(run, said.tool_calls)
        batch = ToolBatch(run, [said], calls)
        await run_tool_calls(batch, calls)
        batch.messages.extend(note)
        return await _end_of_step(run, batch)
    if note:
        return await _next_step(run, ToolBatch(run, [said, *note]), await _close_step(run))
    return await finish_or_suspend(run, ToolBatch(run, [said]), await _close_step(run))


async def _before_another(run: ActiveRun) -> Ending | None:
    """Whether another step would be one too many: asked before it is paid for."""
    if run.steps >= run.agent.spec.max_rounds:
        return await finish(run, Stopped(MAX_ROUNDS, f"{run.steps} rounds were used"))
    if (ending := await check_limits(run)) is not None:
        return ending
    asked = await call_hooks(run, Phase.STEP_START)
    if (ending := await _stop_or_wait(run, asked)) is not None:
        return ending
    return await pause_if_requested(run)


async def _stop_or_wait(run: ActiveRun, asked: HookRequests) -> Ending | None:
    """What plugins ask for in place of going on; an end outweighs a wait."""
    if asked.stop is not None:
        return await finish(run, asked.stop)
    return None if asked.pause is None else await wait_for_pause(run, asked.pause)


def _begin_step(run: ActiveRun) -> None:
    run.in_step = True
    run.emit(StepStart(run.new_message_id()))


async def _end_of_step(run: ActiveRun, batch: ToolBatch) -> Ending | None:
    """What comes after calls: an end that somebody asked for, a rest, or the next step."""
    await batch.save_before_hooks(Phase.STEP_END)
    try:
        stop = await _close_step(run)
    except INTERRUPTIONS:
        await batch.save()
        raise
    if batch.stop is not None:
        return await finish(run, batch.stop, batch)
    if batch.new_tickets:
        await suspend_on_tickets(run, batch, [])
        return Suspended()
    return await _next_step(run, batch, stop)


async def _next_step(run: ActiveRun, batch: ToolBatch, stop: Termination | None) -> Ending | None:
    """Save a step whose calls all have their results; another one comes unless a plugin says no."""
    if stop is not None:
        return await finish(run, stop, batch)
    await batch.save(completes_step=True, calls_settled=True)
    return None


async def _close_step(run: ActiveRun) -> Termination | None:
    """The last words of plugins on a step, before the commit that completes it."""
    telemetry.steps.labels(run.agent.spec.id).inc()
    asked = await call_hooks(run, Phase.STEP_END)
    if asked.hand_off is not None:
        run.change_state(ChangeBatch([handoff_change(asked.hand_off)]))
    return asked.stop


def _assistant_message(run: ActiveRun, reply: Reply) -> Message:
    return Message(
        id=run.new_message_id(),
        role=Role.ASSISTANT,
        content=(Text(reply.text),) if reply.text else (),
        tool_calls=reply.calls,
    )


def _note_of_vain_calls(run: ActiveRun, reply: Reply) -> list[Message]:
    """Tell the model of calls that couldn't be made; people don't see this."""
    if reply.note is None:
        return []
    return [
        Message(
            id=run.new_message_id(),
            role=Role.USER,
            content=(Text(reply.note),),
            visibility=Visibility.INTERNAL,
        )
    ]


async def fail_claimed(run: ActiveRun, code: str, detail: str) -> RunFinished:
    """End a claimed run without another try."""
    _begin(run)
    return await fail(run, code, detail)


async def cancel_claimed(run: ActiveRun) -> RunFinished:
    """End a claimed run because somebody wished it, whether its agent can be had or not."""
    _begin(run)
    return await cancel(run)
