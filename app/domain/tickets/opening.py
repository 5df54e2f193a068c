"""A new ticket: its kind, its name, the allowed actions, and the digest of the arguments it is bound to."""

from collections.abc import Collection
from datetime import datetime
from itertools import chain, count

from app.domain.ids import AgentId, CallId, RunId, ThreadId, TicketKey
from app.domain.json_values import Json, JsonObject, digest
from app.domain.structs import replace
from app.domain.tickets.decisions import Action
from app.domain.tickets.terms import NO_TERMS, TicketTerms
from app.domain.tickets.tickets import (
    APPROVE_ACTION,
    OUTCOME_UNKNOWN_ACTION,
    VISIT_ACTION,
    Ticket,
    TicketKind,
    TicketStatus,
    asks_from_tool,
)
from app.domain.tools.tool_calls import CallState, ResumeMode, SuspensionRequest

_KIND_OF_ACTION = {APPROVE_ACTION: TicketKind.APPROVAL, VISIT_ACTION: TicketKind.AUTH}
_ALWAYS = frozenset({Action.RESPOND, Action.REJECT, Action.CANCEL})


def kind_of_suspension(suspension: SuspensionRequest) -> TicketKind:
    """The kind of the ticket of a call that its tool suspended."""
    if suspension.event is not None:
        return TicketKind.EVENT
    if suspension.action == OUTCOME_UNKNOWN_ACTION:
        return TicketKind.OUTCOME_UNKNOWN
    if not asks_from_tool(suspension.resume_mode, suspension.action):
        return TicketKind.INPUT
    return _KIND_OF_ACTION.get(suspension.action, TicketKind.INPUT)


def allowed_actions(
    kind: TicketKind, mode: ResumeMode, reason: str | None = None
) -> frozenset[Action]:
    """The allowed actions. A decision that is used as the result can't also run the tool."""
    if asks_from_tool(mode, reason):
        asks_for_approval = kind is TicketKind.APPROVAL
        answers = {Action.APPROVE, Action.EDIT} if asks_for_approval else {Action.RESPOND}
        return frozenset({*answers, Action.REJECT, Action.CANCEL})
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


def ticket_name(
    suspension: SuspensionRequest, call_id: CallId, used_names: Collection[str] = ()
) -> str:
    """The ticket's name in its run: the `suspension_id`, else the call's id.

    If another ticket has that name, the call's id and then a number are appended. So a repeated decision
    never counts for a newer ticket.
    """
    name = (suspension.suspension_id or "").strip() or call_id
    if name not in used_names:
        return name
    return free_name(name if name.endswith(call_id) else f"{name}:{call_id}", used_names)


def free_name(name: str, used_names: Collection[str]) -> str:
    """The name, with a number appended if it is taken."""
    names = chain([name], (f"{name}:{number}" for number in count(2)))
    return next(each for each in names if each not in used_names)


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
        allowed_actions=allowed_actions(kind, suspension.resume_mode, suspension.action),
        response_schema=suspension.response_schema,
        reason=suspension.action.strip() or None,
        message=suspension.message,
        status=TicketStatus.OPEN,
        created_at=at,
        updated_at=at,
        evidence=evidence,
        terms=terms,
        event=suspension.event,
        carry=suspension.carry,
        tool_effect=state.effect,
    )


def ticket_as_opened(ticket: Ticket) -> Ticket:
    """The ticket as it was opened, without its decision."""
    return replace(
        ticket,
        status=TicketStatus.OPEN,
        updated_at=ticket.created_at,
        decision=None,
        applied_at=None,
    )
