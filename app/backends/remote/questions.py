"""Questions of a remote agent: their tickets, and the answers in the form that the remote expects."""

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
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Text
from app.domain.tickets.decisions import (
    BETWEEN_MESSAGES,
    EXPIRED,
    Action,
    DecisionAnswer,
    decision_id_of_message,
    denial,
)
from app.domain.tickets.opening import arguments_digest
from app.domain.tickets.terms import policy_of_request
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.domain.tools.tool_calls import ResumeMode

REMOTE_INPUT = "remote:InputRequired"
REMOTE_AUTH = "remote:AuthRequired"


def questions_of(run: RemoteRun, result: BackendResult) -> Sequence[RemoteQuestion]:
    """The open questions of the remote."""
    if result.questions:
        return result.questions
    match result.status:
        case WaitingInput(message) | BackendSuspended(message):
            actions, is_login = {Action.RESPOND, Action.REJECT}, False
        case WaitingAuth(message):
            # The user logs in at the remote. An approval confirms the login.
            actions, is_login = {Action.RESPOND, Action.REJECT, Action.APPROVE}, True
        case _:
            raise ValueError(f"a turn that is {result.status} asks nothing")
    text = message or result.output.text_or("")
    question = RemoteQuestion(
        name=run.turn_key,
        message=text or persisted_status(result.status, result.termination).reason,
        is_login=is_login,
        arguments={"question": text},
        actions=frozenset(actions),
    )
    return [question]


def new_tickets(
    run: RemoteRun, questions: Sequence[RemoteQuestion], still_open: Sequence[Ticket]
) -> list[Ticket]:
    """New tickets for the questions that have none."""
    known = {name_of(ticket) for ticket in still_open}
    taken = {ticket.name for ticket in still_open}
    return [_ticket(run, each, taken) for each in questions if each.name not in known]


def decided_remotely(
    questions: Sequence[RemoteQuestion], still_open: Sequence[Ticket]
) -> list[Ticket]:
    """Open tickets whose questions are no longer open at the remote."""
    names = {question.name for question in questions}
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
    """The remote's name of the question."""
    return str((ticket.evidence or {}).get(REMOTE_QUESTION))


def answer_to_remote(ticket: Ticket) -> RemoteAnswer:
    decision = ticket.decision
    return RemoteAnswer(
        question=name_of(ticket),
        decision_id=ticket.id if decision is None else decision.decision_id,
        answer=_expiry_answer(ticket) if decision is None else decision.answer,
    )


def _expiry_answer(ticket: Ticket) -> DecisionAnswer:
    """Denies an expired ticket, because the remote's question may never expire."""
    can_deny = Action.REJECT in ticket.allowed_actions
    return DecisionAnswer(action=Action.REJECT if can_deny else Action.CANCEL, reason=EXPIRED)


def was_answered_by(ticket: Ticket, messages: Sequence[Message]) -> bool:
    """Whether one of these messages is the ticket's answer. The remote must get an answer only once."""
    decision = ticket.decision
    return decision is not None and decision.decision_id in {
        decision_id_of_message(message.id) for message in messages
    }


def without_answers(tickets: Sequence[Ticket], messages: Sequence[Message]) -> list[Message]:
    """The messages without the texts that answer the tickets.

    One send may answer with several messages: the answer joins their texts. It has no pictures, so a message
    that is part of an answer keeps them.
    """
    answers = {
        ticket.decision.decision_id: str(ticket.decision.answer.result)
        for ticket in tickets
        if ticket.decision is not None
    }
    remaining: list[Message] = []
    unmatched = ""
    for message in messages:
        unmatched = answers.get(decision_id_of_message(message.id), unmatched)
        text = message.text
        if not text or not f"{unmatched}{BETWEEN_MESSAGES}".startswith(f"{text}{BETWEEN_MESSAGES}"):
            remaining.append(message)
            continue
        unmatched = unmatched[len(text) + len(BETWEEN_MESSAGES) :]
        others = tuple(block for block in message.content if not isinstance(block, Text))
        if others:
            remaining.append(replace(message, content=others))
    return remaining


def answer_as_message(ticket: Ticket, message_id: MessageId) -> Message:
    """A person's answer, as the user's next message to the remote."""
    return Message(id=message_id, role=Role.USER, content=(Text(_text_of_answer(ticket)),))


def _text_of_answer(ticket: Ticket) -> str:
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
