"""Questions of a remote agent: a ticket here, and what the remote is told once it is answered."""

from collections.abc import Collection
from typing import assert_never

from app.backends.remote_run import RemoteRun
from app.clock import new_id
from app.domain.backends import (
    AtRest,
    BackendResult,
    WaitingAuth,
    WaitingInput,
    durable,
)
from app.domain.decisions import EXPIRED, Action, denial
from app.domain.ids import MessageId, TicketKey
from app.domain.json_values import Json, compact
from app.domain.messages import Message, Role, Text
from app.domain.ticket_terms import policy_of_request
from app.domain.tickets import Ticket, TicketKind, TicketStatus, arguments_digest
from app.domain.tool_calls import ResumeMode

REMOTE_INPUT = "remote:InputRequired"
REMOTE_AUTH = "remote:AuthRequired"

_ANSWERS = frozenset({Action.RESPOND, Action.REJECT})


def question(run: RemoteRun, result: BackendResult, *, taken: Collection[str]) -> Ticket:
    """The ticket for what the remote waits for. A login happens there, so saying that it is done is an
    answer too."""
    match result.status:
        case WaitingInput(message) | AtRest(message):
            kind, reason, actions = TicketKind.INPUT, REMOTE_INPUT, _ANSWERS
        case WaitingAuth(message):
            kind, reason, actions = TicketKind.AUTH, REMOTE_AUTH, _ANSWERS | {Action.APPROVE}
        case _:
            raise ValueError(f"a turn that is {result.status} asks nothing")
    at = run.clock.now()
    arguments: Json = {"question": message or result.output.text_or("")}
    name = f"remote:{run.turn_key}"
    while name in taken:
        name = f"{name}:again"
    terms = run.spec.ticket_terms(run.target, policy_of_request(run.record.request))
    return Ticket(
        key=TicketKey(new_id()),
        run_id=run.record.id,
        thread_id=run.record.thread_id,
        agent_id=run.spec.id,
        ticket_id=name,
        kind=kind,
        call_id=None,
        step_index=run.steps,
        tool_name=run.target,
        arguments=arguments,
        args_digest=arguments_digest(run.target, arguments),
        resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        allowed_actions=actions,
        response_schema=None,
        reason=reason,
        message=message or durable(result.status, result.termination).reason,
        status=TicketStatus.OPEN,
        created_at=at,
        updated_at=at,
        terms=terms,
    )


def answer_as_message(ticket: Ticket, message_id: MessageId) -> Message:
    """What a person has answered, as the user's next word to the remote."""
    return Message(id=message_id, role=Role.USER, content=(Text(_words(ticket)),))


def _words(ticket: Ticket) -> str:
    if ticket.decision is None:
        return EXPIRED
    answer = ticket.decision.answer
    match answer.action:
        case Action.RESPOND | Action.EDIT:
            result = answer.payload
            return result if isinstance(result, str) else compact(result)
        case Action.APPROVE:
            return "Done." if answer.result is None else compact(answer.result)
        case Action.REJECT | Action.CANCEL:
            return denial(answer)
        case _:
            assert_never(answer.action)
