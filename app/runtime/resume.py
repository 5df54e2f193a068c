"""Resuming: answered tickets are applied to their calls, before the model is asked again."""

from dataclasses import replace
from typing import assert_never

from app.domain.children import result_of_report
from app.domain.decisions import EXPIRED, Action, denial
from app.domain.signals import EventWait, timeout_message
from app.domain.tickets import Ticket, TicketKind, TicketStatus, ticket_order
from app.domain.tool_calls import CallState, CallStatus, ResumeMode, ToolResult, result_of_response
from app.runtime.call_events import last_approval, tickets_of_call
from app.runtime.context import ActiveRun
from app.runtime.cut_short import AskPerson, RunAgain, way_out
from app.runtime.plugins import Phase
from app.runtime.tool_calls import settle
from app.runtime.tool_changes import executed_before
from app.runtime.tool_execution import Executed, Resumption
from app.runtime.tool_gate import judge
from app.runtime.tool_round import BROKEN_OFF, ToolRound


async def continue_cut_short(run: ActiveRun, round_: ToolRound) -> None:
    """Deal with calls that had been answered and were running when a worker was lost.

    One that may be run again keeps the answer that lets it run: that is applied as if it were new.
    """
    try:
        for state in list(run.open_calls.values()):
            if state.status is not CallStatus.RUNNING:
                continue
            answered = [
                ticket.key
                for ticket in run.tickets
                if ticket.call_id == state.call.id and ticket.decision is not None
            ]
            match await way_out(run, state):
                case Executed() as known:
                    await round_.finish(state, known, resumed=True)
                    round_.applied.extend(answered)
                case AskPerson(why):
                    round_.asked_again.extend(answered)
                    await round_.ask_for_outcome(state, why)
                case RunAgain():
                    if not answered:
                        await round_.execute(state, resumed=True)
    except BROKEN_OFF:
        await round_.save()
        raise


async def take_up_held(run: ActiveRun, round_: ToolRound) -> None:
    """Run the calls that a limit had held back: they wait, and no question of their own is open."""
    asked = {ticket.call_id for ticket in run.tickets}
    held = [
        state
        for state in run.open_calls.values()
        if state.status is CallStatus.SUSPENDED and state.call.id not in asked
    ]
    try:
        for state in sorted(held, key=lambda each: each.position):
            if round_.stop is not None:
                return
            await _run_held(round_, state)
    except BROKEN_OFF:
        await round_.save()
        raise


async def _run_held(round_: ToolRound, state: CallState) -> None:
    if state.untold is not None:
        before = executed_before(round_.run, state, state.untold)
        await round_.finish(state, before, resumed=True)
        return
    await round_.secure(Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE)
    verdict = await judge(round_.run, state)
    if verdict is not None:
        await settle(round_, state, verdict, resumed=True)
        return
    await round_.announce(state)
    await round_.execute(state, resumed=True)


async def apply_answers(run: ActiveRun, round_: ToolRound) -> None:
    """Apply each answer that is there, once; calls that still wait for one are left as they are.

    Calls that a person took back go first, then the others in the order in which a waiting run lists
    them, each alone. What hasn't been saved stays in the round, unless it is broken off. An answer
    counts as applied once its call has a result, or another question that is durable: until then a crash
    must not take it away. When the run shall end, the answers that are left aren't used any more.
    """
    states = dict(run.open_calls)
    answered = [ticket for ticket in run.tickets if ticket.key not in round_.used]
    try:
        for ticket in sorted(answered, key=_cancels_first):
            if round_.stop is not None:
                return
            if ticket.status is not TicketStatus.OPEN and ticket.call_id is not None:
                await _apply(round_, states[ticket.call_id], ticket)
                if ticket.call_id in round_.held:
                    # It still lets its call run, once the run may make more.
                    continue
                is_asked_again = any(
                    question.state.call.id == ticket.call_id for question in round_.questions
                )
                used = round_.asked_again if is_asked_again else round_.applied
                used.append(ticket.key)
    except BROKEN_OFF:
        await round_.save()
        raise


def _cancels_first(ticket: Ticket) -> tuple[bool, tuple[str, str]]:
    cancels = ticket.decision is not None and ticket.decision.answer.action is Action.CANCEL
    return (not cancels, ticket_order(ticket))


async def _apply(round_: ToolRound, state: CallState, ticket: Ticket) -> None:
    name = state.call.name
    if ticket.event is not None and (
        ticket.decision is None or ticket.decision.answer.action is Action.RESPOND
    ):
        await _apply_event(round_, state, ticket, ticket.event)
        return
    if ticket.decision is None:
        await round_.finish(state, Executed(ToolResult.error(name, EXPIRED)), resumed=True)
        return
    answer = ticket.decision.answer
    if ticket.kind is TicketKind.CHILD and answer.action is Action.RESPOND:
        reported = Executed(result_of_report(name, answer.result))
        await round_.finish(state, reported, resumed=True)
        return
    is_counted = ticket.kind is not TicketKind.APPROVAL
    match answer.action:
        case Action.CANCEL:
            round_.cancel(state, answer.result, answer.reason)
        case Action.REJECT:
            denied = Executed(ToolResult.error(name, denial(answer)))
            await round_.finish(state, denied, resumed=True)
        case Action.RESPOND:
            given = Executed(result_of_response(name, answer.result))
            await round_.finish(state, given, resumed=True)
        case Action.APPROVE:
            await _run_answered(
                round_, state, Resumption(ticket, answer.result), is_counted=is_counted
            )
        case Action.EDIT:
            edited = replace(state, run_with=answer.arguments)
            await _run_answered(
                round_, edited, Resumption(ticket, answer.result), is_counted=is_counted
            )
        case _:
            assert_never(answer.action)


async def _apply_event(
    round_: ToolRound, state: CallState, ticket: Ticket, wait: EventWait
) -> None:
    """Run a call once more that has waited, with what a person has said to it before the wait.

    An event is no approval: the gate asks a person who hasn't been asked.
    """
    is_of_tool = ticket.resume_mode is ResumeMode.PASS_DECISION_TO_TOOL
    if ticket.decision is None and not is_of_tool:
        late = ToolResult.error(state.call.name, timeout_message(wait.name, wait.key))
        await round_.finish(state, Executed(late), resumed=True)
        return
    approval = last_approval(await tickets_of_call(round_.run.answers, state))
    decision = None if approval is None else approval.decision
    resumption = Resumption(approval, None if decision is None else decision.answer.result)
    await _run_answered(round_, state, resumption, is_counted=is_of_tool)


async def _run_answered(
    round_: ToolRound, state: CallState, resumption: Resumption, *, is_counted: bool
) -> None:
    """Run a call that a person let pass. The gate is asked again: it may be another call by now, the
    tool may have changed, and what the plugins know, too."""
    if state.untold is not None:
        # It has run and asked again, and a worker was lost before that question was open.
        before = executed_before(round_.run, state, state.untold)
        await round_.finish(state, before, resumed=True)
        return
    await round_.secure(Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE)
    verdict = await judge(
        round_.run,
        state,
        was_approved=resumption.was_approved,
        resume_input=resumption.resume_input,
        is_counted=is_counted,
    )
    if verdict is not None:
        await settle(round_, state, verdict, resumed=True)
        return
    await round_.announce(state, resumption)
    await round_.execute(state, resumption, resumed=True)
