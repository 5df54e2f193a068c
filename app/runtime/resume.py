"""Resuming: answered tickets are applied to their calls, before the model is asked again."""

from dataclasses import replace
from typing import assert_never

from app.domain.decisions import Action, Decision, denial
from app.domain.tickets import Ticket, ticket_order
from app.domain.tool_calls import CallState, CallStatus, ToolResult, result_of_response
from app.runtime.context import ActiveRun
from app.runtime.tool_execution import ToolRound


async def continue_cut_short(run: ActiveRun, round_: ToolRound) -> None:
    """Deal with calls that had been answered and were running when a worker was lost.

    One that may be run again keeps the answer that lets it run: that is applied as if it were new.
    """
    for state in list(run.open_calls.values()):
        if state.status is not CallStatus.RUNNING:
            continue
        answered = [
            ticket.key
            for ticket in run.tickets
            if ticket.call_id == state.call.id and ticket.decision is not None
        ]
        if not state.effect.may_be_rerun:
            round_.applied.extend(answered)
            round_.ask_for_outcome(state)
        elif not answered:
            await round_.execute(state, resumed=True)


async def apply_answers(run: ActiveRun, round_: ToolRound) -> None:
    """Apply each answer that is there, once; calls that still wait for one are left as they are.

    Calls that a person took back go first, then the others in the order in which a waiting run lists
    them. What hasn't been saved stays in the round. An answer counts as applied once its call has a
    result: until then a crash must not take it away.
    """
    states = dict(run.open_calls)
    answered = [ticket for ticket in run.tickets if ticket.key not in round_.applied]
    for ticket in sorted(answered, key=_cancels_first):
        if ticket.decision is not None and ticket.call_id is not None:
            await _apply(round_, states[ticket.call_id], ticket.decision)
            round_.applied.append(ticket.key)


def _cancels_first(ticket: Ticket) -> tuple[bool, tuple[str, str]]:
    cancels = ticket.decision is not None and ticket.decision.answer.action is Action.CANCEL
    return (not cancels, ticket_order(ticket))


async def _apply(round_: ToolRound, state: CallState, decision: Decision) -> None:
    answer = decision.answer
    name = state.call.name
    match answer.action:
        case Action.CANCEL:
            round_.cancel(state, answer.result, answer.reason)
        case Action.REJECT:
            round_.finish(state, ToolResult.error(name, denial(answer)), resumed=True)
        case Action.RESPOND:
            round_.finish(state, result_of_response(name, answer.result), resumed=True)
        case Action.APPROVE:
            await _run_answered(round_, state, decision)
        case Action.EDIT:
            await _run_answered(round_, replace(state, run_with=answer.arguments), decision)
        case _:
            assert_never(answer.action)


async def _run_answered(round_: ToolRound, state: CallState, decision: Decision) -> None:
    """The tool may have changed since the question was asked: a call it can't take gets an error."""
    refusal = round_.refusal(state)
    if refusal is not None:
        round_.finish(state, refusal, resumed=True)
    else:
        await round_.execute(state, resumed=True, resume_input=decision.answer.result)
