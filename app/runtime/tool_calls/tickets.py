"""Tickets of calls, with the placeholder messages and events until the result is known."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from app.clock import new_id
from app.domain.events.agent_events import AgentEvent
from app.domain.events.ticket_events import TicketOpened
from app.domain.events.tool_call_events import ToolCallDone
from app.domain.ids import TicketKey
from app.domain.json_values import JsonObject
from app.domain.structs import replace
from app.domain.threads.messages import Message
from app.domain.tickets.opening import ticket_for, ticket_name
from app.domain.tickets.terms import NO_TERMS, TicketTerms, policy_of_request
from app.domain.tickets.ticket_json import ticket_to_json
from app.domain.tickets.tickets import OUTCOME_UNKNOWN_ACTION, Ticket, TicketKind
from app.domain.timestamps import format_timestamp
from app.domain.tools.crash_evidence import evidence_to_json
from app.domain.tools.tool_calls import CallState, CallStatus, SuspensionRequest, ToolResult
from app.runtime.active_run import ActiveRun


class CallTicket(Struct, frozen=True):
    """A suspended call, with the message and events that its ticket's commit writes.

    The placeholder message makes sure that every call in the log has a result. A call that a limit holds
    back has no ticket of its own.
    """

    state: CallState
    ticket: Ticket | None
    placeholder: Message
    events: tuple[AgentEvent, ...]


async def call_ticket(
    run: ActiveRun,
    state: CallState,
    suspension: SuspensionRequest,
    kind: TicketKind,
    evidence: JsonObject | None,
    *,
    others: Sequence[CallTicket],
) -> CallTicket:
    """The ticket of one call, under a name that no other ticket of the run has ever had."""
    taken = {each.ticket.name for each in others if each.ticket is not None}
    taken |= set(await run.answers.names_used())
    ticket = ticket_for(
        state,
        suspension,
        id=TicketKey(new_id()),
        run_id=run.record.id,
        thread_id=run.record.thread_id,
        agent_id=run.agent.spec.id,
        name=ticket_name(suspension, state.call.id, taken),
        kind=kind,
        at=run.clock.now(),
        evidence=evidence if evidence is not None else _described(run, state, kind),
        terms=_terms(run, state, suspension, kind),
    )
    pending = ToolResult.suspended(state.call.name, suspension)
    if kind is TicketKind.CHILD and evidence is not None:
        pending = pending.with_metadata(child_run_id=evidence["run_id"])
    placeholder, done = _suspended(run, state, pending, ticket)
    return CallTicket(
        replace(state, status=CallStatus.SUSPENDED, unreported_outcome=None),
        ticket,
        placeholder,
        (done, TicketOpened(ticket_to_json(ticket))),
    )


def _described(run: ActiveRun, state: CallState, kind: TicketKind) -> JsonObject | None:
    """The digest of the description that an approval is about, for tools whose description may change."""
    tool = run.agent.tools.get(state.call.name)
    if kind is not TicketKind.APPROVAL or tool is None or tool.descriptor.digest is None:
        return None
    return {"tool_digest": tool.descriptor.digest}


def _suspended(
    run: ActiveRun, state: CallState, pending: ToolResult, ticket: Ticket
) -> tuple[Message, ToolCallDone]:
    """The placeholder for the result of a call that waits for the ticket, and its event."""
    status, call_id = CallStatus.SUSPENDED, state.call.id
    placeholder = pending.as_message(run.new_message_id(), call_id, status)
    done = ToolCallDone(call_id, placeholder.id, pending.to_json(status), ticket.id)
    return placeholder, done


def _terms(
    run: ActiveRun, state: CallState, suspension: SuspensionRequest, kind: TicketKind
) -> TicketTerms:
    """The terms of the ticket. A child has none, and a wait for an event has only its own timeout."""
    if kind is TicketKind.CHILD:
        return NO_TERMS
    if suspension.event is not None:
        return TicketTerms(expires_in=suspension.event.timeout)
    policy = policy_of_request(run.record.request)
    return run.agent.spec.ticket_terms(state.call.name, policy)


def call_held_by_limit(run: ActiveRun, state: CallState, limit_ticket: Ticket) -> CallTicket:
    """A call that waits until the limit of tool calls is raised."""
    name = state.call.name
    pending = ToolResult.suspended(
        name, SuspensionRequest(f"Tool '{name}' has not run yet: {limit_ticket.message}")
    )
    placeholder, done = _suspended(run, state, pending, limit_ticket)
    return CallTicket(
        replace(state, status=CallStatus.SUSPENDED, unreported_outcome=None),
        None,
        placeholder,
        (done,),
    )


async def outcome_unknown(
    run: ActiveRun, state: CallState, why: str | None, lost: str
) -> tuple[SuspensionRequest, JsonObject]:
    """The question about a call whose worker or connection was lost, and the evidence."""
    name = state.call.name
    marked_at = run.start.marked_at.get(state.call.id)
    explanation = "" if why is None else f": {why}"
    request = SuspensionRequest(
        f"Tool '{name}' was running when {lost}; whether it took effect is unknown{explanation}",
        action=OUTCOME_UNKNOWN_ACTION,
        suspension_id=f"unknown_{state.call.id}",
    )
    evidence: dict[str, Any] = {
        "idempotency_key": state.idempotency_key,
        "started_at": None if marked_at is None else format_timestamp(marked_at),
        "arguments": state.effective_arguments,
        **evidence_to_json(await run.crash_evidence.evidence_of(state.call.id, marked_at)),
    }
    if why is not None:
        evidence["reconcile"] = why
    return request, evidence
