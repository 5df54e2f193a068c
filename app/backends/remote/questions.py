"""Questions of a remote agent: tickets here, and what the remote is told once they are answered."""

from collections.abc import Collection, Sequence
from typing import assert_never

from app.backends.base import RemoteAnswer
from app.backends.remote.run import RemoteRun
from app.clock import new_id
from app.domain.agents.backend_results import (
    REMOTE_QUESTION,
    BackendResult,
    BackendSuspended,
    RemoteQuestion,
    WaitingAuth,
    WaitingInput,
    persisted_status,
)
from app.domain.ids import MessageId, TicketKey
from app.domain.json_values import Json, compact
from app.domain.threads.messages import Message, Role, Text
from app.domain.tickets.decisions import (
    EXPIRED,
    Action,
    DecisionAnswer,
    decision_id_of_message,
    denial,
)
from app.domain.tickets.terms import policy_of_request
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus, arguments_digest
from app.domain.tools.tool_calls import ResumeMode

REMOTE_INPUT = "remote:InputRequired"
REMOTE_AUTH = "remote:AuthRequired"


def questions_of(run: RemoteRun, result: BackendResult) -> Sequence[RemoteQuestion]:
    """All that the remote waits for."""
    if result.questions:
        return result.questions
    match result.status:
        case WaitingInput(message) | BackendSuspended(message):
            actions, is_login = {Action.RESPOND, Action.REJECT}, False
        case WaitingAuth(message):
            # The login happens there, so saying that it is done is an answer too.
            actions, is_login = {Action.RESPOND, Action.REJECT, Action.APPROVE}, True
        case _:
            raise ValueError(f"a turn that is {result.status} asks nothing")
    said = message or result.output.text_or("")
    question = RemoteQuestion(
        name=run.turn_key,
        message=said or persisted_status(result.status, result.termination).reason,
        is_login=is_login,
        arguments={"question": said},
        actions=frozenset(actions),
    )
    return [question]


def new_tickets(
    run: RemoteRun, asked: Sequence[RemoteQuestion], still_open: Sequence[Ticket]
) -> list[Ticket]:
    """Tickets for those questions that have none yet."""
    known = {name_of(ticket) for ticket in still_open}
    taken = {ticket.name for ticket in still_open}
    return [_ticket(run, each, taken) for each in asked if each.name not in known]


def decided_remotely(asked: Sequence[RemoteQuestion], still_open: Sequence[Ticket]) -> list[Ticket]:
    """Tickets that nobody needs to answer any more: the remote doesn't ask it."""
    names = {question.name for question in asked}
    return [ticket for ticket in still_open if name_of(ticket) not in names]


def _ticket(run: RemoteRun, question: RemoteQuestion, taken: Collection[str]) -> Ticket:
    tool = question.tool_name or run.spec.id
    at = run.clock.now()
    name = f"remote:{question.name}"
    return Ticket(
        id=TicketKey(new_id()),
        run_id=run.record.id,
        thread_id=run.record.thread_id,
        agent_id=run.spec.id,
        name=name if name not in taken else f"{name}:{run.turn_key}",
        kind=TicketKind.AUTH if question.is_login else TicketKind.INPUT,
        call_id=None,
        step_index=run.steps,
        tool_name=tool,
        arguments=question.arguments,
        args_digest=arguments_digest(tool, question.arguments),
        resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        allowed_actions=question.actions,
        response_schema=question.response_schema,
        reason=REMOTE_AUTH if question.is_login else REMOTE_INPUT,
        message=question.message,
        status=TicketStatus.OPEN,
        created_at=at,
        updated_at=at,
        evidence={REMOTE_QUESTION: question.name},
        terms=run.spec.ticket_terms(tool, policy_of_request(run.record.request)),
    )


def name_of(ticket: Ticket) -> str:
    """What the remote calls the question."""
    return str((ticket.evidence or {}).get(REMOTE_QUESTION))


def answer_to_remote(ticket: Ticket) -> RemoteAnswer:
    decision = ticket.decision
    return RemoteAnswer(
        question=name_of(ticket),
        decision_id=ticket.id if decision is None else decision.decision_id,
        answer=_nobodys_answer(ticket) if decision is None else decision.answer,
    )


def _nobodys_answer(ticket: Ticket) -> DecisionAnswer:
    """The time for it is over here; there it might be asked for ever."""
    can_deny = Action.REJECT in ticket.allowed_actions
    return DecisionAnswer(action=Action.REJECT if can_deny else Action.CANCEL, reason=EXPIRED)


def was_answered_by(ticket: Ticket, messages: Sequence[Message]) -> bool:
    """Whether one of these messages was the answer: the remote gets its words once."""
    decision = ticket.decision
    return decision is not None and decision.decision_id in {
        decision_id_of_message(message.id) for message in messages
    }


def answer_as_message(ticket: Ticket, message_id: MessageId) -> Message:
    """What a person has answered, as the user's next word to the remote."""
    return Message(id=message_id, role=Role.USER, content=(Text(_words(ticket)),))


def _words(ticket: Ticket) -> str:
    if ticket.decision is None:
        return EXPIRED
    answer = ticket.decision.answer
    match answer.action:
        case Action.RESPOND | Action.EDIT:
            return _as_text(answer.payload)
        case Action.APPROVE:
            if answer.result is not None:
                return _as_text(answer.result)
            return "Done." if ticket.kind is TicketKind.AUTH else "Approved."
        case Action.REJECT | Action.CANCEL:
            return denial(answer)
        case _:
            assert_never(answer.action)


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else compact(value)
