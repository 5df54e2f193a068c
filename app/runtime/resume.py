"""Resuming: answered tickets are applied to their calls, before the model is asked again."""

from dataclasses import replace
from typing import assert_never

from app.domain.children.child_runs import result_of_report
from app.domain.signals import EventWait, timeout_message
from app.domain.tickets.decisions import EXPIRED, Action, denial
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus, ticket_order
from app.domain.tools.tool_calls import (
    CallState,
    CallStatus,
    ResumeMode,
    ToolResult,
    result_of_response,
)
from app.runtime.active_run import ActiveRun
from app.runtime.plugins import Phase
from app.runtime.run_tool_calls import apply_verdict
from app.runtime.tool_calls.approval_gate import gate_call
from app.runtime.tool_calls.batch import INTERRUPTIONS, ToolBatch
from app.runtime.tool_calls.call_events import last_approval, tickets_of_call
from app.runtime.tool_calls.execute import Executed, Resumption
from app.runtime.tool_calls.interrupted import AskHuman, Rerun, recovery_for
from app.runtime.tool_calls.state_changes import executed_before


async def continue_interrupted_calls(run: ActiveRun, batch: ToolBatch) -> None:
    """Deal with calls that had been answered and were running when a worker was lost.

    One that may be run again keeps the answer that lets it run: that is applied as if it were new.
    """
    try:
        for state in list(run.open_calls.values()):
            if state.status is not CallStatus.RUNNING:
                continue
            answered = [
                ticket.id
                for ticket in run.tickets
                if ticket.call_id == state.call.id and ticket.decision is not None
            ]
            match await recovery_for(run, state):
                case Executed() as known:
                    await batch.finish(state, known, resumed=True)
                    batch.applied.extend(answered)
                case AskHuman(why):
                    batch.reopened.extend(answered)
                    await batch.open_outcome_ticket(state, why)
                case Rerun():
                    if not answered:
                        await batch.execute(state, resumed=True)
    except INTERRUPTIONS:
        await batch.save()
        raise


async def resume_held_calls(run: ActiveRun, batch: ToolBatch) -> None:
    """Run the calls that a limit had held back: they wait, and no question of their own is open."""
    asked = {ticket.call_id for ticket in run.tickets}
    held = [
        state
        for state in run.open_calls.values()
        if state.status is CallStatus.SUSPENDED and state.call.id not in asked
    ]
    try:
        for state in sorted(held, key=lambda each: each.position):
            if batch.stop is not None:
                return
            await _run_held(batch, state)
    except INTERRUPTIONS:
        await batch.save()
        raise


async def _run_held(batch: ToolBatch, state: CallState) -> None:
    if state.unreported is not None:
        before = executed_before(batch.run, state, state.unreported)
        await batch.finish(state, before, resumed=True)
        return
    await batch.save_before_hooks(Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE)
    verdict = await gate_call(batch.run, state)
    if verdict is not None:
        await apply_verdict(batch, state, verdict, resumed=True)
        return
    await batch.call_before_hooks(state)
    await batch.execute(state, resumed=True)


async def apply_decisions(run: ActiveRun, batch: ToolBatch) -> None:
    """Apply each answer that is there, once; calls that still wait for one are left as they are.

    Calls that a person took back go first, then the others in the order in which a waiting run lists
    them, each alone. What hasn't been saved stays in the round, unless it is broken off. An answer
    counts as applied once its call has a result, or another question that is durable: until then a crash
    must not take it away. When the run shall end, the answers that are left aren't used any more.
    """
    states = dict(run.open_calls)
    answered = [ticket for ticket in run.tickets if ticket.id not in batch.applied_tickets]
    try:
        for ticket in sorted(answered, key=_cancels_first):
            if batch.stop is not None:
                return
            if ticket.status is not TicketStatus.OPEN and ticket.call_id is not None:
                await _apply(batch, states[ticket.call_id], ticket)
                if ticket.call_id in batch.held:
                    # It still lets its call run, once the run may make more.
                    continue
                is_asked_again = any(
                    question.state.call.id == ticket.call_id for question in batch.new_tickets
                )
                used = batch.reopened if is_asked_again else batch.applied
                used.append(ticket.id)
    except INTERRUPTIONS:
        await batch.save()
        raise


def _cancels_first(ticket: Ticket) -> tuple[bool, tuple[str, str]]:
    cancels = ticket.decision is not None and ticket.decision.answer.action is Action.CANCEL
    return (not cancels, ticket_order(ticket))


async def _apply(batch: ToolBatch, state: CallState, ticket: Ticket) -> None:
    name = state.call.name
    if ticket.event is not None and (
        ticket.decision is None or ticket.decision.answer.action is Action.RESPOND
    ):
        await _apply_event(batch, state, ticket, ticket.event)
        return
    if ticket.decision is None:
        await batch.finish(state, Executed(ToolResult.error(name, EXPIRED)), resumed=True)
        return
    answer = ticket.decision.answer
    if ticket.kind is TicketKind.CHILD and answer.action is Action.RESPOND:
        reported = Executed(result_of_report(name, answer.result))
        await batch.finish(state, reported, resumed=True)
        return
    is_counted = ticket.kind is not TicketKind.APPROVAL
    match answer.action:
        case Action.CANCEL:
            batch.cancel(state, answer.result, answer.reason)
        case Action.REJECT:
            denied = Executed(ToolResult.error(name, denial(answer)))
            await batch.finish(state, denied, resumed=True)
        case Action.RESPOND:
            given = Executed(result_of_response(name, answer.result))
            await batch.finish(state, given, resumed=True)
        case Action.APPROVE:
            await _run_answered(
                batch, state, Resumption(ticket, answer.result), is_counted=is_counted
            )
        case Action.EDIT:
            edited = replace(state, run_with=answer.arguments)
            await _run_answered(
                batch, edited, Resumption(ticket, answer.result), is_counted=is_counted
            )
        case _:
            assert_never(answer.action)


async def _apply_event(batch: ToolBatch, state: CallState, ticket: Ticket, wait: EventWait) -> None:
    """Run a call once more that has waited, with what a person has said to it before the wait.

    An event is no approval: the gate asks a person who hasn't been asked.
    """
    is_of_tool = ticket.resume_mode is ResumeMode.PASS_DECISION_TO_TOOL
    if ticket.decision is None and not is_of_tool:
        late = ToolResult.error(state.call.name, timeout_message(wait.name, wait.key))
        await batch.finish(state, Executed(late), resumed=True)
        return
    approval = last_approval(await tickets_of_call(batch.run.answers, state))
    decision = None if approval is None else approval.decision
    resumption = Resumption(approval, None if decision is None else decision.answer.result)
    await _run_answered(batch, state, resumption, is_counted=is_of_tool)


async def _run_answered(
    batch: ToolBatch, state: CallState, resumption: Resumption, *, is_counted: bool
) -> None:
    """Run a call that a person let pass. The gate is asked again: it may be another call by now, the
    tool may have changed, and what the plugins know, too."""
    if state.unreported is not None:
        # It has run and asked again, and a worker was lost before that question was open.
        before = executed_before(batch.run, state, state.unreported)
        await batch.finish(state, before, resumed=True)
        return
    await batch.save_before_hooks(Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE)
    verdict = await gate_call(
        batch.run,
        state,
        was_approved=resumption.was_approved,
        resume_input=resumption.resume_input,
        is_counted=is_counted,
    )
    if verdict is not None:
        await apply_verdict(batch, state, verdict, resumed=True)
        return
    await batch.call_before_hooks(state, resumption)
    await batch.execute(state, resumption, resumed=True)
