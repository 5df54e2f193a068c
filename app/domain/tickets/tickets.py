"""Tickets: durable questions that suspend a run, each about one exact call.

    open ──► decided | expired | void

A ticket is an authorization boundary: it is bound to the run, the tool and the digest of the arguments. It is
applied once, and never changes after it left `open`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import chain, count
from typing import Any

from app.domain.ids import AgentId, CallId, RunId, ThreadId, TicketKey
from app.domain.json_values import Json, JsonObject, digest
from app.domain.principals import Principal
from app.domain.runs.runs import WaitingReason
from app.domain.signals import EventWait
from app.domain.tickets.decisions import Action, Decision
from app.domain.tickets.terms import NO_TERMS, TicketTerms, approvers_to_json
from app.domain.timestamps import format_timestamp
from app.domain.tools.tool_calls import CallState, ResumeMode, SuspensionRequest


class TicketKind(StrEnum):
    APPROVAL = "approval"
    INPUT = "input"
    FRONTEND = "frontend"
    OUTCOME_UNKNOWN = "outcome_unknown"
    LIMIT = "limit"
    AUTH = "auth"
    CHILD = "child"
    EVENT = "event"


ANSWERED_BY_PROGRAMS = frozenset({TicketKind.CHILD, TicketKind.EVENT})
"""Kinds that inboxes leave out: a child run or a signal answers them."""


class TicketStatus(StrEnum):
    OPEN = "open"
    DECIDED = "decided"
    EXPIRED = "expired"
    VOID = "void"


class NoticeKind(StrEnum):
    """The kinds of changes that the inbox publishes."""

    OPENED = "opened"
    VOTED = "voted"
    DECIDED = "decided"
    REMINDER = "reminder"
    EXPIRED = "expired"
    VOID = "void"


TICKET_TRANSITIONS: Mapping[TicketStatus, frozenset[TicketStatus]] = {
    TicketStatus.OPEN: frozenset(TicketStatus),
    TicketStatus.DECIDED: frozenset({TicketStatus.DECIDED}),
    TicketStatus.EXPIRED: frozenset({TicketStatus.EXPIRED}),
    TicketStatus.VOID: frozenset({TicketStatus.VOID}),
}
"""The state diagram in the documents is compared with this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """`id` is unique in the tenant, `name` in the run. On the wire the name is `ticket_id`."""

    id: TicketKey
    run_id: RunId
    thread_id: ThreadId
    agent_id: AgentId
    """The agent that made the call; the run may have been handed off since."""
    name: str
    kind: TicketKind
    call_id: CallId | None
    step_index: int
    tool_name: str
    arguments: Json
    args_digest: str
    resume_mode: ResumeMode
    allowed_actions: frozenset[Action]
    response_schema: JsonObject | None
    reason: str | None
    message: str
    status: TicketStatus
    created_at: datetime
    updated_at: datetime
    decision: Decision | None = None
    applied_at: datetime | None = None
    evidence: JsonObject | None = None
    terms: TicketTerms = NO_TERMS
    event: EventWait | None = None
    """The event that a ticket of kind `event` waits for."""
    expires_at: datetime | None = None
    """By the database's clock; None until the ticket is stored."""

    @property
    def is_unsettled(self) -> bool:
        """Whether the ticket is open, or decided or expired and not applied."""
        is_over = self.status in (TicketStatus.DECIDED, TicketStatus.EXPIRED)
        return self.status is TicketStatus.OPEN or (is_over and self.applied_at is None)


def can_resume(unsettled: Collection[Ticket]) -> bool:
    """Whether a run with these unsettled tickets can resume.

    An open limit ticket holds the whole run, so decisions on other tickets wait with it.
    """
    is_held = any(
        each.kind is TicketKind.LIMIT and each.status is TicketStatus.OPEN for each in unsettled
    )
    return not is_held and any(
        each.is_unsettled and each.status is not TicketStatus.OPEN for each in unsettled
    )


_ALWAYS = frozenset({Action.RESPOND, Action.REJECT, Action.CANCEL})


def allowed_actions(kind: TicketKind, mode: ResumeMode) -> frozenset[Action]:
    """The allowed actions. A decision that is used as the result can't also run the tool."""
    if kind is TicketKind.CHILD:
        return frozenset({Action.CANCEL})
    if kind is TicketKind.EVENT:
        return frozenset({Action.RESPOND, Action.CANCEL})
    if kind is TicketKind.OUTCOME_UNKNOWN:
        return frozenset({Action.APPROVE, Action.RESPOND, Action.CANCEL})
    if mode is ResumeMode.USE_DECISION_AS_TOOL_RESULT:
        return _ALWAYS
    return _ALWAYS | {Action.APPROVE, Action.EDIT}


def arguments_digest(tool_name: str, arguments: Json) -> str:
    """A digest that a decision may quote to name the exact call that it is about."""
    return digest([tool_name, arguments])


def ticket_name(suspension: SuspensionRequest, call_id: CallId, taken: Collection[str] = ()) -> str:
    """The ticket's name in its run: the `suspension_id`, else the call's id.

    If another ticket has that name, the call's id and then a number are appended. So a repeated decision
    never counts for a newer ticket.
    """
    name = (suspension.suspension_id or "").strip() or call_id
    if name not in taken:
        return name
    return free_name(name if name.endswith(call_id) else f"{name}:{call_id}", taken)


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number appended if it is taken."""
    names = chain([name], (f"{name}:{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


def ticket_for(
    state: CallState,
    suspension: SuspensionRequest,
    *,
    id: TicketKey,
    run_id: RunId,
    thread_id: ThreadId,
    agent_id: AgentId,
    name: str,
    kind: TicketKind,
    at: datetime,
    evidence: JsonObject | None = None,
    terms: TicketTerms = NO_TERMS,
) -> Ticket:
    """The ticket of one call, bound to the arguments that the call would run with."""
    tool_name, arguments = state.call.name, state.effective_arguments
    return Ticket(
        id=id,
        run_id=run_id,
        thread_id=thread_id,
        agent_id=agent_id,
        name=name,
        kind=kind,
        call_id=state.call.id,
        step_index=state.step_index,
        tool_name=tool_name,
        arguments=arguments,
        args_digest=arguments_digest(tool_name, arguments),
        resume_mode=suspension.resume_mode,
        allowed_actions=allowed_actions(kind, suspension.resume_mode),
        response_schema=suspension.response_schema,
        reason=suspension.action.strip() or None,
        message=suspension.message,
        status=TicketStatus.OPEN,
        created_at=at,
        updated_at=at,
        evidence=evidence,
        terms=terms,
        event=suspension.event,
    )


def ticket_order(ticket: Ticket) -> tuple[str, str]:
    """The order in which a waiting run lists its tickets."""
    return (ticket.call_id or "", ticket.name)


def ticket_as_opened(ticket: Ticket) -> Ticket:
    """The ticket as it was opened, without its decision."""
    return replace(
        ticket,
        status=TicketStatus.OPEN,
        updated_at=ticket.created_at,
        decision=None,
        applied_at=None,
    )


def ticket_to_json(ticket: Ticket) -> dict[str, Any]:
    """The ticket as a waiting run shows it."""
    body: dict[str, Any] = {
        "id": ticket.id,
        "ticket_id": ticket.name,
        "kind": ticket.kind.value,
        "tool_call_id": ticket.call_id,
        "tool_name": ticket.tool_name,
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
    return {key: value for key, value in body.items() if value is not None}


def event_to_json(wait: EventWait) -> dict[str, Any]:
    """The event that a ticket waits for, as clients see it."""
    return {"name": wait.name, "key": wait.key}


def _terms_to_json(ticket: Ticket) -> dict[str, Any]:
    """The terms on the wire. Before the ticket is stored it has `expires_in` instead of `expires_at`."""
    terms = ticket.terms
    body: dict[str, Any] = {}
    if terms.approvers is not None:
        body["approvers"] = approvers_to_json(terms.approvers)
    if ticket.expires_at is not None:
        body |= {
            "expires_at": format_timestamp(ticket.expires_at),
            "on_expiry": terms.on_expiry.value,
        }
    elif terms.expires_in is not None:
        body |= {"expires_in": terms.expires_in, "on_expiry": terms.on_expiry.value}
    return body


def suspension_to_json(ticket: Ticket) -> dict[str, Any]:
    """The ticket as the pending result of its call shows it."""
    suspension: dict[str, Any] = {
        "id": ticket.name,
        "action": ticket.reason,
        "message": ticket.message,
        "parameters": ticket.arguments,
        "response_schema": ticket.response_schema,
    }
    return {
        "suspension": {key: value for key, value in suspension.items() if value is not None},
        "pending": {
            "id": ticket.call_id,
            "name": ticket.tool_name,
            "arguments": ticket.arguments,
        },
        "resume_mode": ticket.resume_mode.value,
    }


def waiting_to_json(
    reason: WaitingReason,
    message: str,
    tickets: Sequence[Ticket],
    since_dispatch_id: str,
    until: datetime | None = None,
    detail: str = "",
) -> dict[str, Any]:
    """What a run waits for; `ticket_ids` are the tickets' names in the same order. `until` and `detail` are
    only set for a rate limit."""
    ordered = sorted(tickets, key=ticket_order)
    timed = {} if until is None else {"until": format_timestamp(until), "detail": detail}
    return {
        "reason": reason.value,
        "message": message,
        "ticket_ids": [ticket.name for ticket in ordered],
        "tickets": [ticket_to_json(ticket) for ticket in ordered],
        "since_dispatch_id": since_dispatch_id,
        **timed,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketFilter:
    """The filter of a ticket list."""

    status: TicketStatus | None = None
    kind: TicketKind | None = None
    """Without a kind, only tickets that people answer."""
    agent_id: AgentId | None = None
    tool: str | None = None
    run_id: RunId | None = None
    expires_before: datetime | None = None
    decidable_by: Principal | None = None
    """Only tickets that this person may decide and hasn't voted on."""
