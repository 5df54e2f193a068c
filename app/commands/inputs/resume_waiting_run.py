"""Resume a waiting run with messages, if a message is what it waits for.

A ticket is an authorization boundary: a message never approves a call. It answers only tickets of kind
`input`, a tool's question to the user: the answer is the call's result, and nothing is executed by it. All
other tickets need a decision.
"""

from collections.abc import Sequence
from typing import assert_never

from app.commands.runs.steer import reason_not_steerable, steer
from app.commands.tickets.decide import apply_decisions
from app.commands.tickets.decision_types import DecisionRequest
from app.context import ServiceContext
from app.domain.errors import Conflict, Invalid
from app.domain.ids import InputId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord, Waiting, WaitingReason
from app.domain.threads.messages import Message, Role
from app.domain.tickets.decisions import (
    BETWEEN_MESSAGES,
    Action,
    DecisionAnswer,
    decision_id_of_message,
)
from app.domain.tickets.ticket_json import ticket_to_json
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.events.transaction import Transaction
from app.storage.queue import deliveries
from app.storage.runs.runs import RunKey
from app.storage.tickets import tickets


async def resume_waiting_run(
    ctx: ServiceContext,
    principal: Principal,
    transaction: Transaction,
    record: RunRecord,
    messages: Sequence[Message],
    *,
    deliver: bool,
) -> tuple[tuple[InputId, ...], RunKey | None]:
    """Queue messages for a waiting run and resume it, or refuse. The caller has locked thread and run.

    Returns the ids of the inputs and, if the caller has to claim the run, its key.
    """
    if (why_not := reason_not_steerable(record)) is not None:
        raise why_not
    if not isinstance(record.state, Waiting):
        raise Conflict(
            "run_not_waiting",
            f"The run is {record.status.value} and doesn't wait. Send the messages with mode "
            '"steer" or "queue".',
            run_id=record.id,
        )
    reason = record.state.reason
    is_resumed = reason is WaitingReason.MANUAL_PAUSE and not record.is_paused
    if reason is WaitingReason.BACKGROUND_TASKS or is_resumed:
        # A run that was resumed and isn't claimed yet reads them when it continues.
        return await steer(transaction, record, messages), None
    if (refusal := _reason_not_resumable(record, record.state)) is not None:
        raise refusal
    all_tickets = await tickets.of_run(transaction.connection, record.tenant, record.id)
    still_open = [ticket for ticket in all_tickets if ticket.status is TicketStatus.OPEN]
    input_ids = await steer(transaction, record, messages)
    if not still_open:
        # Its tickets were answered or have expired: a delivery resumes it.
        return input_ids, None
    question = _only_question(still_open)
    principal.require(Scope.DECISIONS_WRITE)
    answering = _with_text(messages)
    request = DecisionRequest(
        ticket=question.id,
        answer=DecisionAnswer(
            action=Action.RESPOND,
            result=BETWEEN_MESSAGES.join(message.text for message in answering),
        ),
        decision_id=decision_id_of_message(answering[0].id),
        args_digest=None,
    )
    await apply_decisions(ctx, principal, transaction, record, all_tickets, [request])
    if record.is_paused:
        return input_ids, None
    key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
    if deliver:
        await deliveries.enqueue(transaction.connection, key)
    return input_ids, None if deliver else key


def _reason_not_resumable(record: RunRecord, state: Waiting) -> Conflict | None:
    """The refusal for a run that no message can resume; None for the others."""
    match state.reason:
        case WaitingReason.AGENT_VERSION_UNAVAILABLE:
            return Conflict(
                "agent_version_unavailable", f"{state.message}; only it can continue the run."
            )
        case WaitingReason.MANUAL_PAUSE:
            code = "run_paused"
            why = f"The run is paused. Resume it with POST /v1/runs/{record.id}/resume; a message"
        case WaitingReason.RATE_LIMIT:
            code = "run_not_waiting"
            why = "The run waits for a rate limit to pass, and resumes without a person. A message"
        case WaitingReason.CHILD_RUNS:
            code = "run_not_waiting"
            why = "The run waits only for runs that it has started. A message"
        case WaitingReason.EXTERNAL_EVENT:
            code = "run_not_waiting"
            why = "The run waits for an event, which POST /v1/signals sends. A message"
        case (
            WaitingReason.BACKGROUND_TASKS
            | WaitingReason.TOOL_PERMISSION
            | WaitingReason.USER_INPUT
        ):
            return None
        case _:
            assert_never(state.reason)
    return Conflict(code, f'{why} with mode "steer" is read when it continues.', run_id=record.id)


def _only_question(still_open: Sequence[Ticket]) -> Ticket:
    """The open ticket, if it is the only one and a message can answer it."""
    match still_open:
        case [Ticket(kind=TicketKind.INPUT) as question] if question.terms.approvers is None:
            return question
        case _:
            raise Conflict(
                "decisions_needed",
                "The run waits for decisions, which a message can't replace. Answer its tickets. A message "
                'with mode "steer" is read when it resumes.',
                tickets=[
                    {
                        name: value
                        for name, value in ticket_to_json(ticket).items()
                        if name in ("id", "kind", "tool_name", "allowed_actions")
                    }
                    for ticket in still_open
                ],
            )


def _with_text(messages: Sequence[Message]) -> list[Message]:
    """The user messages that have text."""
    found = [message for message in messages if message.role is Role.USER and message.text]
    if not found:
        raise Invalid(
            "answer_without_text",
            "The run waits for an answer as text, and no user message has text. Send one with text.",
        )
    return found
