"""Tickets and decisions, as approvers see and send them."""

from typing import Any, Literal

from pydantic import AliasChoices, Field, model_validator
from pydantic.config import JsonDict

from app.api.schemas.common import Answer, JsonValue, Metadata, Request, Str, Time
from app.control.decide import DecisionRequest, DecisionResult
from app.domain.decisions import Action
from app.domain.decisions import Answer as Given
from app.domain.tickets import Ticket

_EXAMPLE: JsonDict = {
    "decisions": [
        {"ticket_id": "call_1", "action": "approve"},
        {"ticket_id": "call_2", "action": "reject", "reason": "Not on a Friday."},
    ]
}


class TicketOut(Answer):
    """A question about one exact call. Answer it with POST /v1/runs/{run_id}/decisions."""

    id: str
    ticket_id: str = Field(description="Its name within the run.")
    run_id: str
    thread_id: str
    kind: str
    status: Literal["open", "decided", "expired", "void"]
    tool_call_id: str | None
    tool_name: str
    arguments: Any
    args_digest: str = Field(description="Quote it in a decision to be sure of what is approved.")
    resume_mode: str
    allowed_actions: list[str]
    response_schema: dict[str, Any] | None
    reason: str | None
    message: str
    evidence: dict[str, Any] | None
    decision: "DecisionOut | None"
    applied_at: Time | None
    created_at: Time
    updated_at: Time


class DecisionOut(Answer):
    decision_id: str
    action: str
    payload: Any
    reason: str | None
    decided_by: str
    decided_at: Time


def ticket_out(ticket: Ticket) -> TicketOut:
    decision = ticket.decision
    return TicketOut(
        id=ticket.key,
        ticket_id=ticket.ticket_id,
        run_id=ticket.run_id,
        thread_id=ticket.thread_id,
        kind=ticket.kind.value,
        status=ticket.status.value,
        tool_call_id=ticket.call_id,
        tool_name=ticket.tool_name,
        arguments=ticket.arguments,
        args_digest=ticket.args_digest,
        resume_mode=ticket.resume_mode.value,
        allowed_actions=sorted(ticket.allowed_actions),
        response_schema=None if ticket.response_schema is None else dict(ticket.response_schema),
        reason=ticket.reason,
        message=ticket.message,
        evidence=None if ticket.evidence is None else dict(ticket.evidence),
        decision=None
        if decision is None
        else DecisionOut(
            decision_id=decision.decision_id,
            action=decision.answer.action.value,
            payload=decision.answer.payload,
            reason=decision.answer.reason,
            decided_by=decision.subject,
            decided_at=decision.at,
        ),
        applied_at=ticket.applied_at,
        created_at=ticket.created_at,
        updated_at=ticket.updated_at,
    )


class DecisionIn(Request):
    """One answer. `approve` runs the call, `edit` runs it with other arguments, `respond` gives the
    result in its place, `reject` denies it with a reason that the model reads, `cancel` drops it."""

    ticket_id: Str = Field(
        validation_alias=AliasChoices("ticket_id", "tool_call_id", "ticketId", "toolCallId"),
        min_length=1,
        max_length=500,
        description="The ticket's ticket_id or id, or its tool_call_id.",
    )
    action: Action
    decision_id: Str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Your id for this decision: the same again is answered the same.",
    )
    arguments: Metadata | None = Field(None, description="With `edit`: what the tool gets instead.")
    result: JsonValue = Field(None, description="With `respond`: the call's result.")
    reason: Str | None = Field(None, max_length=4000)
    args_digest: Str | None = Field(None, max_length=200)

    @model_validator(mode="after")
    def _fields_fit_the_action(self) -> "DecisionIn":
        given = self.model_fields_set
        if (self.action is Action.EDIT) != (self.arguments is not None):
            raise ValueError("`arguments` belong to the action `edit`, which needs them")
        if self.action is Action.RESPOND and "result" not in given:
            raise ValueError("the action `respond` needs a `result` (null is one)")
        if "result" in given and self.action not in (Action.RESPOND, Action.CANCEL):
            raise ValueError("`result` belongs to the actions `respond` and `cancel`")
        return self

    def to_domain(self) -> DecisionRequest:
        return DecisionRequest(
            ticket=self.ticket_id,
            answer=Given(
                action=self.action,
                arguments=self.arguments,
                result=self.result,
                reason=self.reason,
            ),
            decision_id=self.decision_id,
            args_digest=self.args_digest,
        )


class DecisionsIn(Request):
    """Answers to one or several tickets of a run: all of them take effect, or none."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    decisions: list[DecisionIn] = Field(min_length=1, max_length=100)


class DecisionResultOut(Answer):
    id: str
    ticket_id: str
    status: Literal["accepted", "duplicate"]
    action: str
    decision_id: str
    decided_by: str
    decided_at: Time


def decision_result_out(result: DecisionResult) -> DecisionResultOut:
    return DecisionResultOut(
        id=result.ticket.key,
        ticket_id=result.ticket.ticket_id,
        status="duplicate" if result.is_duplicate else "accepted",
        action=result.decision.answer.action.value,
        decision_id=result.decision.decision_id,
        decided_by=result.decision.subject,
        decided_at=result.decision.at,
    )
