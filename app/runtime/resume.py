"""Resuming: applies answered tickets to their calls before the model is asked again."""

from typing import assert_never

from app.domain.children.child_runs import result_of_report
from app.domain.signals import EventWait, timeout_message
from app.domain.structs import replace
from app.domain.tickets.decisions import EXPIRED, Action, denial
from app.domain.tickets.ticket_json import ticket_order
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.domain.tools.tool_calls import (
    CallState,
    CallStatus,
    ResumeMode,
    SuspensionRequest,
    ToolResult,
    result_of_response,
)
from app.runtime.active_run import ActiveRun
from app.runtime.plugins import Phase
from app.runtime.run_tool_calls import apply_verdict
from app.runtime.tool_calls.approval_gate import MustAsk, gate_call
from app.runtime.tool_calls.batch import INTERRUPTIONS, ToolBatch
from app.runtime.tool_calls.call_events import last_approval, tickets_of_call
from app.runtime.tool_calls.execute import Executed, Resumption
from app.runtime.tool_calls.interrupted import AskHuman, Rerun, recovery_for
from app.runtime.tool_calls.state_changes import executed_before


async def continue_interrupted_calls(run: ActiveRun, batch: ToolBatch) -> None:
    """Recover resumed calls that were running when their worker was lost.

    A call that may run again keeps its decision, which is applied like a new one.
    """
    try:
        for state in list(run.open_calls.values()):
            if state.status is not CallStatus.RUNNING:
                continue
            decided = [
                ticket.id
                for ticket in run.tickets
                if ticket.call_id == state.call.id and ticket.decision is not None
            ]
            match await recovery_for(run, state):
                case Executed() as known:
                    await batch.finish(state, known, resumed=True)
                    batch.applied.extend(decided)
                case AskHuman(why):
                    batch.reopened.extend(decided)
                    await batch.open_outcome_ticket(state, why)
                case Rerun():
                    if not decided:
                        await batch.execute(state, resumed=True)
    except INTERRUPTIONS:
        await batch.save()
        raise


async def resume_calls_held_by_limit(run: ActiveRun, batch: ToolBatch) -> None:
    """Run the calls that a limit held back: open calls without a ticket of their own.

    One that has run before its worker was lost is reported, and not run again.
    """
    with_ticket = {ticket.call_id for ticket in run.tickets}
    held = [
        state
        for state in run.open_calls.values()
        if state.status is not CallStatus.RUNNING and state.call.id not in with_ticket
    ]
    try:
        for state in sorted(held, key=lambda each: each.position):
            if batch.stop is not None:
                return
            await _run_call_held_by_limit(batch, state)
    except INTERRUPTIONS:
        await batch.save()
        raise


async def _run_call_held_by_limit(batch: ToolBatch, state: CallState) -> None:
    if state.unreported_result is not None:
        before = executed_before(batch.run, state, state.unreported_result)
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
    """Apply each answered ticket once; calls with open tickets are left as they are.

    Cancelled calls go first, then the others in the order in which a waiting run lists them. Results stay
    in the batch until its next save, which an interruption makes at once. A ticket counts as applied when
    its call has a result or a new durable ticket, so a crash before that loses no decision. If the run is
    to end, the remaining decisions are not applied.
    """
    states = dict(run.open_calls)
    unapplied = [ticket for ticket in run.tickets if ticket.id not in batch.applied_tickets]
    try:
        for ticket in sorted(unapplied, key=_cancels_first):
            if batch.stop is not None:
                return
            if ticket.status is not TicketStatus.OPEN and ticket.call_id is not None:
                await _apply_decision(batch, states[ticket.call_id], ticket)
                if ticket.call_id in batch.held:
                    # The decision stays unapplied: it lets the call run when the limit is raised.
                    continue
                is_asked_again = any(
                    each.state.call.id == ticket.call_id for each in batch.new_tickets
                )
                applied = batch.reopened if is_asked_again else batch.applied
                applied.append(ticket.id)
    except INTERRUPTIONS:
        await batch.save()
        raise


def _cancels_first(ticket: Ticket) -> tuple[bool, tuple[str, str]]:
    cancels = ticket.decision is not None and ticket.decision.answer.action is Action.CANCEL
    return (not cancels, ticket_order(ticket))


async def _apply_decision(batch: ToolBatch, state: CallState, ticket: Ticket) -> None:
    name = state.call.name
    if ticket.event is not None and (
        ticket.decision is None or ticket.decision.answer.action is Action.RESPOND
    ):
        await _apply_event(batch, state, ticket, ticket.event)
        return
    if ticket.is_question_of_tool and (
        ticket.decision is None or ticket.decision.answer.action is not Action.CANCEL
    ):
        await _answer_tool(batch, state, ticket)
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
            await _run_resumed_call(
                batch, state, Resumption(ticket, answer.result), is_counted=is_counted
            )
        case Action.EDIT:
            edited = replace(state, edited_arguments=answer.arguments)
            await _run_resumed_call(
                batch, edited, Resumption(ticket, answer.result), is_counted=is_counted
            )
        case _:
            assert_never(answer.action)


async def _apply_event(batch: ToolBatch, state: CallState, ticket: Ticket, wait: EventWait) -> None:
    """Run a call again whose event came or timed out, with the decision that it had before the wait.

    An event is no approval: the gate opens an approval ticket if the call needs one and has none.
    """
    is_wait_of_tool = ticket.resume_mode is ResumeMode.PASS_DECISION_TO_TOOL
    if ticket.decision is None and not is_wait_of_tool:
        timed_out = ToolResult.error(state.call.name, timeout_message(wait.name, wait.key))
        await batch.finish(state, Executed(timed_out), resumed=True)
        return
    approval = last_approval(await tickets_of_call(batch.run.answers, state))
    decision = None if approval is None else approval.decision
    resumption = Resumption(approval, None if decision is None else decision.answer.result)
    await _run_resumed_call(batch, state, resumption, is_counted=is_wait_of_tool)


async def _answer_tool(batch: ToolBatch, state: CallState, ticket: Ticket) -> None:
    """Run a call again whose tool asked a person. It finds the decision, also a rejection or an expiry."""
    answer = None if ticket.decision is None else ticket.decision.answer
    if answer is not None and answer.action is Action.EDIT:
        state = replace(state, edited_arguments=answer.arguments)
    approval = last_approval(await tickets_of_call(batch.run.answers, state))
    await _run_resumed_call(batch, state, Resumption(approval), is_counted=True)


async def _run_resumed_call(
    batch: ToolBatch, state: CallState, resumption: Resumption, *, is_counted: bool
) -> None:
    """Run a call that a person approved. It passes the gate again, because its arguments, its tool or
    the plugins may have changed since."""
    if state.unreported_result is not None:
        # The call ran and suspended again, but its worker was lost before the ticket was opened.
        before = executed_before(batch.run, state, state.unreported_result)
        await batch.finish(state, before, resumed=True)
        return
    await batch.save_before_hooks(Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE)
    has_changed = _has_changed(batch.run, state, resumption.ticket)
    verdict = await gate_call(
        batch.run,
        state,
        was_approved=resumption.was_approved and not has_changed,
        resume_input=resumption.resume_input,
        is_counted=is_counted,
    )
    if verdict is not None:
        if has_changed and isinstance(verdict, MustAsk):
            verdict = replace(verdict, request=_asked_again(verdict.request))
        await apply_verdict(batch, state, verdict, resumed=True)
        return
    await batch.call_before_hooks(state, resumption)
    await batch.execute(state, resumption, resumed=True)


def _has_changed(run: ActiveRun, state: CallState, approval: Ticket | None) -> bool:
    """Whether the tool's description is another one than that which the person has approved."""
    tool = run.agent.tools.get(state.call.name)
    approved = None if approval is None else (approval.evidence or {}).get("tool_digest")
    return approved is not None and tool is not None and tool.descriptor.digest != approved


def _asked_again(request: SuspensionRequest) -> SuspensionRequest:
    message = f"{request.message}. The tool's description has changed since it was approved"
    return replace(request, message=message)
