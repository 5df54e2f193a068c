"""Tickets: durable questions that keep a run waiting, each about one exact call.

    open ──► decided | expired | void

A ticket is an authorization boundary, not a chat message: it is bound to the tool, to the digest of
its arguments and to the run, it can be used once, and it never changes after it left `open`.
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
    """What the inbox is told of a ticket."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """`key` is its id in the tenant; `ticket_id` its name in the run, unique among the open ones."""

    id: TicketKey
    run_id: RunId
    thread_id: ThreadId
    agent_id: AgentId
    """Who made the call: the run may have been handed from one to another."""
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
    """What a ticket of kind `event` waits for."""
    expires_at: datetime | None = None
    """By the database's clock: known once the ticket is stored."""

    @property
    def is_unsettled(self) -> bool:
        """Open, or answered or expired and not yet applied."""
        is_over = self.status in (TicketStatus.DECIDED, TicketStatus.EXPIRED)
        return self.status is TicketStatus.OPEN or (is_over and self.applied_at is None)


def can_resume(unsettled: Collection[Ticket]) -> bool:
    """Whether a run that waits for these has an answer that it can use.

    A question about a limit is about the whole run: while it is open, other answers wait with it.
    """
    is_held = any(
        each.kind is TicketKind.LIMIT and each.status is TicketStatus.OPEN for each in unsettled
    )
    return not is_held and any(
        each.is_unsettled and each.status is not TicketStatus.OPEN for each in unsettled
    )


_ALWAYS = frozenset({Action.RESPOND, Action.REJECT, Action.CANCEL})


def allowed_actions(kind: TicketKind, mode: ResumeMode) -> frozenset[Action]:
    """What may be answered. A decision that *is* the result can't also run the tool."""
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
    """What a decision may quote to say which call exactly it was made about."""
    return digest([tool_name, arguments])


def ticket_name(suspension: SuspensionRequest, call_id: CallId, taken: Collection[str] = ()) -> str:
    """What a ticket is called in its run: as the asker named it, else like its call.

    A name that another ticket has is made unique by the call's id, and by a number after that: an
    answer that is sent again must never count for a newer question.
    """
    name = (suspension.suspension_id or "").strip() or call_id
    if name not in taken:
        return name
    return free_name(name if name.endswith(call_id) else f"{name}:{call_id}", taken)


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it where somebody has it already."""
    names = chain([name], (f"{name}:{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


def ticket_for(
    state: CallState,
    suspension: SuspensionRequest,
    *,
    key: TicketKey,
    run_id: RunId,
    thread_id: ThreadId,
    agent_id: AgentId,
    ticket_id: str,
    kind: TicketKind,
    at: datetime,
    evidence: JsonObject | None = None,
    terms: TicketTerms = NO_TERMS,
) -> Ticket:
    """The question about one call, bound to the arguments that it would run with."""
    name, arguments = state.call.name, state.effective_arguments
    return Ticket(
        id=key,
        run_id=run_id,
        thread_id=thread_id,
        agent_id=agent_id,
        name=ticket_id,
        kind=kind,
        call_id=state.call.id,
        step_index=state.step_index,
        tool_name=name,
        arguments=arguments,
        args_digest=arguments_digest(name, arguments),
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
    """The question as it was asked, whatever has become of it."""
    return replace(
        ticket,
        status=TicketStatus.OPEN,
        updated_at=ticket.created_at,
        decision=None,
        applied_at=None,
    )


def ticket_to_json(ticket: Ticket) -> dict[str, Any]:
    """A ticket as a waiting run shows it."""
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
    """What a ticket waits for, as clients see it."""
    return {"name": wait.name, "key": wait.key}


def _terms_to_json(ticket: Ticket) -> dict[str, Any]:
    """`expires_in` counts from the moment of storing, by the database's clock; that isn't known before."""
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
    """A question as the result of its call shows it."""
    asked: dict[str, Any] = {
        "id": ticket.name,
        "action": ticket.reason,
        "message": ticket.message,
        "parameters": ticket.arguments,
        "response_schema": ticket.response_schema,
    }
    return {
        "suspension": {key: value for key, value in asked.items() if value is not None},
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
    """What a waiting run waits for; `ticket_ids` are its tickets' names in the same order. `until` and
    `detail` are there when it only needs time."""
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
    """Which tickets an inbox shows."""

    status: TicketStatus | None = None
    kind: TicketKind | None = None
    """Without it, those that people answer."""
    agent_id: AgentId | None = None
    tool: str | None = None
    run_id: RunId | None = None
    expires_before: datetime | None = None
    decidable_by: Principal | None = None
    """Those that this person may decide, and hasn't voted on."""
