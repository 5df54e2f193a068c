"""A decision in two words, as clients of awaken send it."""

from typing import Literal

from pydantic import AliasChoices, Field
from pydantic.config import JsonDict

from app.api.schemas.common import JsonValue, RequestModel, ResponseModel, Str
from app.commands.tickets.resume import ResumeAction, ResumeRequest

_EXAMPLE: JsonDict = {"toolCallId": "call_1", "action": "resume", "payload": {"amount": 20}}


class ResumeIn(RequestModel):
    """`resume` runs the call, runs it with the payload as its arguments, or takes the payload for its
    result, as the ticket asks for; `cancel` drops the call."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    ticket_id: Str = Field(
        validation_alias=AliasChoices("ticket_id", "tool_call_id", "ticketId", "toolCallId"),
        min_length=1,
        max_length=500,
        description="The ticket's ticket_id or id, or its tool_call_id.",
    )
    action: ResumeAction
    payload: JsonValue = Field(None, validation_alias=AliasChoices("payload", "result"))
    reason: Str | None = Field(None, max_length=4000)
    decision_id: Str | None = Field(
        None,
        validation_alias=AliasChoices("decision_id", "decisionId"),
        min_length=1,
        max_length=200,
        description="Your id for this decision: the same again is answered the same.",
    )

    def to_domain(self) -> ResumeRequest:
        return ResumeRequest(
            ticket=self.ticket_id,
            action=self.action,
            payload=self.payload,
            reason=self.reason,
            decision_id=self.decision_id,
        )


class SubmittedOut(ResponseModel):
    """Recorded: nothing can lose it."""

    status: Literal["decision_submitted"] = "decision_submitted"
    thread_id: str
    run_id: str
    ticket_id: str
    tool_call_id: str | None
    decision_id: str
