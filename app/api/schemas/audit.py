"""The audit: cases of one run, and lines of an export."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.api.schemas.common import ResponseModel, Time
from app.api.schemas.tickets import TicketOut, ticket_out
from app.domain.tickets.decisions import StoredAttempt
from app.domain.tickets.tickets import TicketStatus
from app.domain.timestamps import Period, format_timestamp
from app.queries.audit import AuditCase, AuditOutcome


class AttemptOut(ResponseModel):
    """A decision that was sent, and its effect."""

    decision_id: str
    effect: Literal["decided", "voted", "refused"]
    refusal: str | None = Field(description="Error code of a refused decision; null for others.")
    action: str
    payload: Any
    reason: str | None
    decided_by: str
    decided_at: Time


class CallOutcomeOut(ResponseModel):
    """What the call came to after its ticket was decided."""

    status: str = Field(
        description="succeeded, failed, suspended (it asked again), denied, cancelled, answered or "
        "expired."
    )
    at: Time
    event_id: int = Field(description="Id of the thread's event about it.")
    ran_with: Any = Field(description="Arguments that the tool got; null if it wasn't executed.")
    result: Any


class AuditCaseOut(ResponseModel):
    """A call with a ticket: the ticket, all decisions, and the outcome."""

    blocked: TicketOut
    decisions: list[AttemptOut]
    executed: CallOutcomeOut | None


class AuditOut(ResponseModel):
    """The audit of a run."""

    run_id: str
    cases: list[AuditCaseOut] = Field(description="Calls with tickets, oldest first.")


def case_out(case: AuditCase) -> AuditCaseOut:
    return AuditCaseOut(
        blocked=ticket_out(case.ticket),
        decisions=[_attempt_out(attempt) for attempt in case.attempts],
        executed=None if case.outcome is None else _call_outcome_out(case.outcome),
    )


def _attempt_out(attempt: StoredAttempt) -> AttemptOut:
    decision = attempt.decision
    return AttemptOut(
        decision_id=decision.decision_id,
        effect=attempt.effect.value,
        refusal=attempt.refusal,
        action=decision.answer.action.value,
        payload=decision.answer.payload,
        reason=decision.answer.reason,
        decided_by=decision.subject,
        decided_at=decision.at,
    )


def _call_outcome_out(outcome: AuditOutcome) -> CallOutcomeOut:
    return CallOutcomeOut(
        status=outcome.status,
        at=outcome.at,
        event_id=outcome.event_id,
        ran_with=outcome.ran_with,
        result=outcome.result,
    )


def lines_of(case: AuditCase, period: Period) -> Iterator[dict[str, Any]]:
    """The records of a case that are in a period. Each names its ticket."""
    ticket = case.ticket
    links = {
        "ticket": ticket.id,
        "run_id": ticket.run_id,
        "thread_id": ticket.thread_id,
        "tool_call_id": ticket.call_id,
    }
    for record, at, fields in _records(case):
        if period.contains(at):
            yield {"record": record, "at": format_timestamp(at), **links, **fields}


def _records(case: AuditCase) -> Iterator[tuple[str, datetime, dict[str, Any]]]:
    ticket = case.ticket
    shown = ticket_out(ticket).model_dump(mode="json")
    question = ("agent_id", "ticket_id", "kind", "tool_name", "arguments", "args_digest", "message")
    yield "blocked", ticket.created_at, {name: shown[name] for name in question}
    for attempt in case.attempts:
        fields = _attempt_out(attempt).model_dump(mode="json", exclude={"effect", "decided_at"})
        yield attempt.effect.value, attempt.decision.at, fields
    if ticket.status in (TicketStatus.EXPIRED, TicketStatus.VOID):
        yield ticket.status.value, ticket.updated_at, {"on_expiry": shown["on_expiry"]}
    if case.outcome is not None:
        fields = _call_outcome_out(case.outcome).model_dump(mode="json", exclude={"at"})
        yield "executed", case.outcome.at, fields
