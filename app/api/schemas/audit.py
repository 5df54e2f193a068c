"""The audit as it is shown: cases of one run, and lines of an export."""

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
    """An answer that somebody gave, and what became of it."""

    decision_id: str
    effect: Literal["decided", "voted", "refused"]
    refusal: str | None = Field(description="The code that a refused one was answered with.")
    action: str
    payload: Any
    reason: str | None
    decided_by: str
    decided_at: Time


class OutcomeOut(ResponseModel):
    """What became of the call once its ticket was settled."""

    status: str = Field(
        description="succeeded, failed, suspended (it asked again), denied, cancelled, answered or "
        "expired."
    )
    at: Time
    event_id: int = Field(description="The event of the thread that tells of it.")
    ran_with: Any = Field(description="The arguments that the tool got; null when it wasn't run.")
    result: Any


class AuditCaseOut(ResponseModel):
    """One call that was held back: the question, all answers, and what came of it."""

    blocked: TicketOut
    decisions: list[AttemptOut]
    executed: OutcomeOut | None


class AuditOut(ResponseModel):
    run_id: str
    cases: list[AuditCaseOut] = Field(description="Oldest first.")


def case_out(case: AuditCase) -> AuditCaseOut:
    return AuditCaseOut(
        blocked=ticket_out(case.ticket),
        decisions=[_attempt_out(attempt) for attempt in case.attempts],
        executed=None if case.outcome is None else _outcome_out(case.outcome),
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


def _outcome_out(outcome: AuditOutcome) -> OutcomeOut:
    return OutcomeOut(
        status=outcome.status,
        at=outcome.at,
        event_id=outcome.event_id,
        ran_with=outcome.ran_with,
        result=outcome.result,
    )


def lines_of(case: AuditCase, period: Period) -> Iterator[dict[str, Any]]:
    """What of a case has happened in a period, each as a record of its own that names its ticket."""
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
        fields = _outcome_out(case.outcome).model_dump(mode="json", exclude={"at"})
        yield "executed", case.outcome.at, fields
