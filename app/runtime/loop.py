"""The loop: executes one run until it finishes, suspends or is handed over.

    begin ─► resume open calls ─► [ step: inference ─► tool calls ]* ─► finish | suspend | hand over

The path is the same for a start, a resume and a takeover. Each step ends in a commit. Work between two
commits may be lost and repeated, except calls that a commit has marked as begun.
"""

from typing import assert_never

from app import telemetry
from app.domain.errors import OwnershipLost
from app.domain.events.run_events import RunStart
from app.domain.events.step_events import StreamReset
from app.domain.runs.identity import run_identity
from app.domain.runs.limits import Limit
from app.domain.runs.rate_limits import TimedPause
from app.domain.runs.terminations import MAX_ROUNDS, Failed, Stopped, Termination
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
from app.runtime.inference.structured_output import judged
from app.runtime.limits import apply_raises, at_the_limit, check_limits, wall_clock_limit
from app.runtime.phases import HookRequests, call_hooks
from app.runtime.plugins import Phase
from app.runtime.resume import (
    apply_decisions,
    continue_interrupted_calls,
    resume_calls_held_by_limit,
)
from app.runtime.run_tool_calls import run_tool_calls
from app.runtime.state import ChangeBatch
from app.runtime.tool_calls.background import has_answered
from app.runtime.tool_calls.batch import INTERRUPTIONS, ToolBatch
from app.runtime.tool_calls.new_calls import new_calls, with_calls_declined
from app.runtime.waits.pauses import pause_if_requested
from app.runtime.waits.rate_limits import wait_for_pause


async def advance(run: ActiveRun) -> Ending:
    """Execute a claimed run until it finishes, suspends or is handed over."""
    try:
        _begin_activation(run)
        activate_agent(run)
        run.interruption.check()
        if (ending := await apply_raises(run)) is not None:
            return ending
        if (ending := await pause_if_requested(run)) is not None:
            return ending
        with wall_clock_limit(run):
            if (ending := await _resume_open_calls(run)) is not None:
                return ending
            requests = await call_hooks(run, Phase.RUN_START)
            if (ending := await _stop_or_wait(run, requests)) is not None:
                return ending
            return await _run_steps(run)
    except Interrupted as interrupted:
        return await _end_interrupted(run, interrupted.reason)


async def fail_claimed(run: ActiveRun, code: str, detail: str) -> RunFinished:
    """Fail a claimed run without executing it."""
    _begin_activation(run)
    return await fail(run, code, detail)


async def cancel_claimed(run: ActiveRun) -> RunFinished:
    """Cancel a claimed run without executing it; its agent may be a placeholder."""
    _begin_activation(run)
    return await cancel(run)


# --- beginnings -----------------------------------------------------------------------------------


def _begin_activation(run: ActiveRun) -> None:
    """Begin an activation. After a takeover, continue the old one and void its unsaved answer."""
    if run.start.continues:
        run.in_step = run.start.step_begun
        if run.in_step and not _calls_of_open_step(run):
            run.emit(StreamReset("takeover"))
        return
    run.emit(RunStart(run_identity(run.record), run.record.lineage.parent_run_id))
    if _calls_of_open_step(run):
        run.begin_step()


def _calls_of_open_step(run: ActiveRun) -> list[CallState]:
    """The calls of the incomplete step, if its assistant message is in the log."""
    return [state for state in run.start.calls if state.step_index == run.steps]


async def _resume_open_calls(run: ActiveRun) -> Ending | None:
    """Give results to the calls that an earlier activation left open; None if steps may follow."""
    batch = ToolBatch(run)
    if run.in_step and (calls := _calls_of_open_step(run)):
        await run_tool_calls(batch, calls)
        return await _end_step_with_calls(run, batch)
    if not run.open_calls:
        return None
    await continue_interrupted_calls(run, batch)
    await resume_calls_held_by_limit(run, batch)
    while True:
        await apply_decisions(run, batch)
        if batch.stop is not None:
            await batch.save()
            return await finish(run, batch.stop, close_open_calls(run))
        still_open = [ticket for ticket in run.tickets if ticket.status is TicketStatus.OPEN]
        if not (still_open or batch.opened):
            await batch.save(calls_settled=True)
            return None
        if await suspend_on_tickets(run, batch, still_open):
            return Suspended()
        # A ticket was decided before the commit, so the run doesn't suspend yet.
        unapplied = await run.answers.unapplied()
        run.tickets = [ticket for ticket in unapplied if ticket.id not in batch.applied_tickets]


# --- steps ----------------------------------------------------------------------------------------


async def _run_steps(run: ActiveRun) -> Ending:
    """Run one step after another until one of them, or a check before it, ends the activation."""
    if has_answered(run) and (ending := await finish_or_suspend(run)) is not None:
        return ending
    while True:
        run.interruption.check()
        if (ending := await pause_if_requested(run)) is not None:
            return ending
        if (ending := await _read_pending_inputs(run)) is not None:
            return ending
        if (blocked := await hand_off_if_requested(run)) is not None:
            return await finish(run, blocked)
        if (ending := await _run_step(run)) is not None:
            return ending


async def _read_pending_inputs(run: ActiveRun) -> Ending | None:
    """Append pending inputs to the log, but only after an interrupted answer is complete."""
    while run.unread_inputs and partial_answer(run) is None:
        await run.read_inbox()
        # All inputs may have been retracted. Then the last answer is final.
        if has_answered(run) and (ending := await finish_or_suspend(run)) is not None:
            return ending
    return None


async def _run_step(run: ActiveRun) -> Ending | None:
    """Ask the model once and run the calls that it requests; None if another step follows."""
    if not run.in_step:
        if (ending := await _check_before_step(run)) is not None:
            return ending
        run.begin_step()
    requests = await call_hooks(run, Phase.BEFORE_INFERENCE, tool_names=run.agent.hideable_tools)
    if (ending := await _stop_or_wait(run, requests)) is not None:
        return ending
    run.compaction.consider(run.record.id, run.agent, run.log, run.state.snapshot)
    reply = await infer(run, requests)
    if isinstance(reply, TimedPause):
        return await wait_for_pause(run, reply)
    return await _process_reply(run, reply)


async def _check_before_step(run: ActiveRun) -> Ending | None:
    """End or suspend before the model is asked, because of a limit, a plugin or a pause request."""
    if run.steps >= run.agent.spec.max_rounds:
        return await finish(run, Stopped(MAX_ROUNDS, f"{run.steps} rounds were used"))
    if (ending := await check_limits(run)) is not None:
        return ending
    requests = await call_hooks(run, Phase.STEP_START)
    if (ending := await _stop_or_wait(run, requests)) is not None:
        return ending
    return await pause_if_requested(run)


async def _process_reply(run: ActiveRun, reply: Reply) -> Ending | None:
    """Run the calls of the model's answer, or complete the step without calls."""
    message = _assistant_message(run, reply)
    run.unsaved_answer = message
    run.emit(run.message_done(message))
    requests = await call_hooks(run, Phase.AFTER_INFERENCE, answer=message)
    if requests.stop is not None:
        return await finish(run, requests.stop, with_calls_declined(run, message))
    note = _note_about_dropped_calls(run, reply)
    if reply.calls:
        calls = new_calls(run, message.tool_calls)
        batch = ToolBatch(run, [message], calls)
        await run_tool_calls(batch, calls)
        batch.messages.extend(note)
        return await _end_step_with_calls(run, batch)
    batch = ToolBatch(run, [message, *note])
    stop = await _call_step_end_hooks(run)
    if note:
        return await _complete_step(run, batch, stop)
    match judged(run, message):
        case Message() as correction:
            batch.messages.append(correction)
            return await _complete_step(run, batch, stop)
        case Failed() as failure:
            return await finish(run, failure, batch)
    return await finish_or_suspend(run, batch, stop)


async def _end_step_with_calls(run: ActiveRun, batch: ToolBatch) -> Ending | None:
    """Finish if a plugin or a call requested it, suspend if tickets were opened, else complete the step."""
    await batch.save_before_hooks(Phase.STEP_END)
    try:
        stop = await _call_step_end_hooks(run)
    except INTERRUPTIONS:
        await batch.save()
        raise
    if batch.stop is not None:
        return await finish(run, batch.stop, batch)
    if batch.new_tickets:
        await suspend_on_tickets(run, batch, [])
        return Suspended()
    return await _complete_step(run, batch, stop)


async def _call_step_end_hooks(run: ActiveRun) -> Termination | None:
    """Call the hooks before the commit that completes the step; return the end that they ask for."""
    telemetry.steps.labels(run.agent.spec.id).inc()
    requests = await call_hooks(run, Phase.STEP_END)
    if requests.hand_off is not None:
        run.change_state(ChangeBatch([handoff_change(requests.hand_off)]))
    return requests.stop


async def _complete_step(
    run: ActiveRun, batch: ToolBatch, stop: Termination | None
) -> Ending | None:
    """Save a step whose calls all have results; None if another step follows."""
    if stop is not None:
        return await finish(run, stop, batch)
    await batch.save(completes_step=True, calls_settled=True)
    return None


def _assistant_message(run: ActiveRun, reply: Reply) -> Message:
    return Message(
        id=run.answer_id(),
        role=Role.ASSISTANT,
        content=(Text(reply.text, reply.citations),) if reply.text else (),
        tool_calls=reply.calls,
        provider_data=reply.provider_data,
    )


def _note_about_dropped_calls(run: ActiveRun, reply: Reply) -> list[Message]:
    """An internal message that tells the model which of its calls were not made."""
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


# --- endings --------------------------------------------------------------------------------------


async def _stop_or_wait(run: ActiveRun, requests: HookRequests) -> Ending | None:
    """Do what plugins ask for instead of continuing; a stop outweighs a pause."""
    if requests.stop is not None:
        return await finish(run, requests.stop)
    return None if requests.pause is None else await wait_for_pause(run, requests.pause)


async def _end_interrupted(run: ActiveRun, reason: InterruptReason) -> Ending:
    """End the activation that an interruption has broken off."""
    match reason:
        case InterruptReason.CANCEL:
            return await cancel(run)
        case InterruptReason.HAND_OVER:
            return HandedOver()
        case InterruptReason.OUT_OF_TIME:
            return await at_the_limit(run, Limit.WALL_SECONDS)
        case InterruptReason.ABANDON:
            raise OwnershipLost(run.record.id) from None
        case _:
            assert_never(reason)
