"""Questions about calls: the ticket, and what the log and the clients get in place of a result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.clock import new_id
from app.domain.events.command_events import TicketOpened
from app.domain.events.run_events import AgentEvent, ToolCallDone
from app.domain.ids import TicketKey
from app.domain.json_values import JsonObject
from app.domain.threads.messages import Message
from app.domain.tickets.terms import NO_TERMS, TicketTerms, policy_of_request
from app.domain.tickets.tickets import (
    Ticket,
    TicketKind,
    suspension_to_json,
    ticket_for,
    ticket_name,
    ticket_to_json,
)
from app.domain.timestamps import format_timestamp
from app.domain.tools.crash_evidence import evidence_to_json
from app.domain.tools.tool_calls import CallState, CallStatus, SuspensionRequest, ToolResult
from app.runtime.active_run import ActiveRun

OUTCOME_UNKNOWN_ACTION = "tool:OutcomeUnknown"


@dataclass(frozen=True, slots=True)
class CallTicket:
    """A call that waits for a person, with all that is said once its ticket is durable.

    The log gets a placeholder, so that no call is ever without a message. A call that a limit holds back
    has no ticket of its own.
    """

    state: CallState
    ticket: Ticket | None
    placeholder: Message
    said: tuple[AgentEvent, ...]


async def call_ticket(
    run: ActiveRun,
    state: CallState,
    suspension: SuspensionRequest,
    kind: TicketKind,
    evidence: JsonObject | None,
    *,
    beside: Sequence[CallTicket],
) -> CallTicket:
    """The question about one call, under a name that no other ticket of the run has ever had."""
    taken = {each.ticket.name for each in beside if each.ticket is not None}
    taken |= set(await run.answers.names_used())
    ticket = ticket_for(
        state,
        suspension,
        key=TicketKey(new_id()),
        run_id=run.record.id,
        thread_id=run.record.thread_id,
        agent_id=run.agent.spec.id,
        ticket_id=ticket_name(suspension, state.call.id, taken),
        kind=kind,
        at=run.clock.now(),
        evidence=evidence,
        terms=_terms(run, state, suspension, kind),
    )
    pending = ToolResult.suspended(state.call.name, suspension)
    if kind is TicketKind.CHILD and evidence is not None:
        pending = pending.with_metadata(child_run_id=evidence["run_id"])
    placeholder = pending.as_message(run.new_message_id(), state.call.id)
    result = {**pending.to_json(), "suspension": suspension_to_json(ticket)}
    done = ToolCallDone(state.call.id, placeholder.id, result, CallStatus.SUSPENDED.value)
    return CallTicket(
        replace(state, status=CallStatus.SUSPENDED, unreported_outcome=None),
        ticket,
        placeholder,
        (done, TicketOpened(ticket_to_json(ticket))),
    )


def _terms(
    run: ActiveRun, state: CallState, suspension: SuspensionRequest, kind: TicketKind
) -> TicketTerms:
    """Rules for approvers and their time are about people. An event has the time that its wait says."""
    if kind is TicketKind.CHILD:
        return NO_TERMS
    if suspension.event is not None:
        return TicketTerms(expires_in=suspension.event.timeout)
    policy = policy_of_request(run.record.request)
    return run.agent.spec.ticket_terms(state.call.name, policy)


def held_call(run: ActiveRun, state: CallState, about: Ticket) -> CallTicket:
    """A call that waits until the run may make more."""
    name = state.call.name
    pending = ToolResult.suspended(
        name, SuspensionRequest(f"Tool '{name}' has not run yet: {about.message}")
    )
    placeholder = pending.as_message(run.new_message_id(), state.call.id)
    call = {"id": state.call.id, "name": name, "arguments": state.effective_arguments}
    suspension = {**suspension_to_json(about), "pending": call}
    done = ToolCallDone(
        state.call.id,
        placeholder.id,
        {**pending.to_json(), "suspension": suspension},
        CallStatus.SUSPENDED.value,
    )
    return CallTicket(
        replace(state, status=CallStatus.SUSPENDED, unreported_outcome=None),
        None,
        placeholder,
        (done,),
    )


async def outcome_unknown(
    run: ActiveRun, state: CallState, why: str | None
) -> tuple[SuspensionRequest, JsonObject]:
    """What is asked about a call over which a worker was lost, and what is known of it."""
    name = state.call.name
    marked_at = run.start.marked_at.get(state.call.id)
    said = "" if why is None else f": {why}"
    request = SuspensionRequest(
        f"Tool '{name}' was running when its worker was lost; whether it took effect is unknown{said}",
        action=OUTCOME_UNKNOWN_ACTION,
        suspension_id=f"unknown_{state.call.id}",
    )
    evidence: dict[str, Any] = {
        "idempotency_key": state.idempotency_key,
        "started_at": None if marked_at is None else format_timestamp(marked_at),
        "ran_with": state.effective_arguments,
        **evidence_to_json(await run.traces.evidence_of(state.call.id, marked_at)),
    }
    if why is not None:
        evidence["reconcile"] = why
    return request, evidence
