"""Tickets as clients see them in events and records of runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.domain.json_values import without_none
from app.domain.runs.identity import SINCE_DISPATCH_ID
from app.domain.runs.runs import WaitingReason
from app.domain.signals import EventWait
from app.domain.tickets.terms import approvers_to_json
from app.domain.tickets.tickets import Ticket
from app.domain.timestamps import format_timestamp


def ticket_order(ticket: Ticket) -> tuple[str, str]:
    """The order in which a waiting run lists its tickets."""
    return (ticket.call_id or "", ticket.name)


def ticket_to_json(ticket: Ticket) -> dict[str, Any]:
    """The ticket as a waiting run shows it."""
    body: dict[str, Any] = {
        "id": ticket.id,
        "name": ticket.name,
        "run_id": ticket.run_id,
        "thread_id": ticket.thread_id,
        "agent_id": ticket.agent_id,
        "kind": ticket.kind.value,
        "tool_call_id": ticket.call_id,
        "tool_name": ticket.tool_name,
        "tool_effect": None if ticket.tool_effect is None else ticket.tool_effect.value,
        "arguments": ticket.arguments,
        "args_digest": ticket.args_digest,
        "resume_mode": ticket.resume_mode.value,
        "allowed_actions": sorted(ticket.allowed_actions),
        "response_schema": ticket.response_schema,
        "reason": ticket.reason,
        "message": ticket.message,
        "evidence": ticket.evidence,
        "event": None if ticket.event is None else event_to_json(ticket.event),
        **_terms_to_json(ticket),
        "updated_at": format_timestamp(ticket.updated_at),
    }
    return without_none(body)


def child_of(ticket: Ticket) -> dict[str, Any]:
    """The ticket's run, as the streams of the runs above it name it."""
    return {"run_id": ticket.run_id, "thread_id": ticket.thread_id, "agent_id": ticket.agent_id}


def event_to_json(wait: EventWait) -> dict[str, Any]:
    """The event that a ticket waits for, as clients see it."""
    return {"name": wait.name, "key": wait.key}


def _terms_to_json(ticket: Ticket) -> dict[str, Any]:
    """The terms on the wire. Before the ticket is stored it has `expires_in` instead of `expires_at`."""
    terms, at = ticket.terms, ticket.expires_at
    expires = terms.expires_in is not None or at is not None
    return {
        "approvers": None if terms.approvers is None else approvers_to_json(terms.approvers),
        "expires_at": None if at is None else format_timestamp(at),
        "expires_in": terms.expires_in if at is None else None,
        "on_expiry": terms.on_expiry.value if expires else None,
    }


def waiting_to_json(
    reason: WaitingReason,
    tickets: Sequence[Ticket],
    since_dispatch_id: str,
    until: datetime | None = None,
    detail: str = "",
) -> dict[str, Any]:
    """What a run waits for. `until` and `detail` are only set for a rate limit."""
    ordered = sorted(tickets, key=ticket_order)
    timed = {} if until is None else {"until": format_timestamp(until), "detail": detail}
    return {
        "reason": reason.value,
        "tickets": [ticket_to_json(ticket) for ticket in ordered],
        SINCE_DISPATCH_ID: since_dispatch_id,
        **timed,
    }
