"""The audit: cases of one run, and lines of an export."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AliasPath, BeforeValidator, Field

from app.api.schemas.common import ResponseModel, Time
from app.api.schemas.tickets import TicketOut
from app.domain.tickets.tickets import TicketStatus
from app.domain.timestamps import Period, format_timestamp
from app.queries.audit import AuditCase


class AttemptOut(ResponseModel):
    """A decision that was sent, and its effect."""

    id: str = Field(validation_alias=AliasPath("decision", "decision_id"))
    effect: Literal["decided", "voted", "refused"]
    refusal: str | None = Field(description="Error code of a refused decision; null for others.")
    action: str = Field(validation_alias=AliasPath("decision", "answer", "action"))
    payload: Any = Field(validation_alias=AliasPath("decision", "answer", "payload"))
    reason: str | None = Field(validation_alias=AliasPath("decision", "answer", "reason"))
    decided_by: str = Field(validation_alias=AliasPath("decision", "subject"))
    decided_at: Time = Field(validation_alias=AliasPath("decision", "at"))


def _status_of(outcome: str | None) -> str:
    return "waiting" if outcome is None else "done"


class CallOutcomeOut(ResponseModel):
    """The outcome of the call after its ticket was decided."""

    status: Annotated[Literal["waiting", "done"], BeforeValidator(_status_of)] = Field(
        validation_alias="outcome",
        description="`waiting`: the call asked again, and its next ticket has a case of its own.",
    )
    outcome: (
        Literal["succeeded", "failed", "cancelled", "rejected", "answered", "expired"] | None
    ) = Field(description="How the call ended; null while it waits.")
    at: Time
    event_id: int = Field(description="Id of the thread's event about it.")
    executed_arguments: Any = Field(
        description="Arguments that the tool got; null if it wasn't executed."
    )
    result: Any = Field(description="The result of the call as its event shows it.")


class AuditCaseOut(ResponseModel):
    """A call with a ticket: the ticket, all decisions, and the outcome."""

    blocked: TicketOut = Field(validation_alias="ticket")
    decisions: list[AttemptOut] = Field(validation_alias="attempts")
    executed: CallOutcomeOut | None = Field(validation_alias="outcome")


def lines_of(case: AuditCase, period: Period) -> Iterator[dict[str, Any]]:
    """The records of a case that are in a period. Each names its ticket."""
    ticket = case.ticket
    links = {
        "ticket_id": ticket.id,
        "run_id": ticket.run_id,
        "thread_id": ticket.thread_id,
        "tool_call_id": ticket.call_id,
    }
    for record, at, fields in _records(case):
        if period.contains(at):
            yield {"record": record, "at": format_timestamp(at), **links, **fields}


def _records(case: AuditCase) -> Iterator[tuple[str, datetime, dict[str, Any]]]:
    ticket = case.ticket
    shown = TicketOut.model_validate(ticket).model_dump(mode="json")
    question = ("agent_id", "name", "kind", "tool_name", "arguments", "args_digest", "message")
    yield "blocked", ticket.created_at, {name: shown[name] for name in question}
    for attempt in case.attempts:
        sent = AttemptOut.model_validate(attempt)
        fields = sent.model_dump(mode="json", exclude={"id", "effect", "decided_at"})
        yield attempt.effect.value, attempt.decision.at, {"decision_id": sent.id, **fields}
    if ticket.status in (TicketStatus.EXPIRED, TicketStatus.VOID):
        yield ticket.status.value, ticket.updated_at, {"on_expiry": shown["on_expiry"]}
    if case.outcome is not None:
        executed = CallOutcomeOut.model_validate(case.outcome)
        fields = executed.model_dump(mode="json", exclude={"at"})
        yield "executed", case.outcome.at, fields
