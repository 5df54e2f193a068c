"""Tickets and decisions, as approvers see and send them."""

from typing import Any, Literal

from pydantic import AliasChoices, Field, model_validator
from pydantic.config import JsonDict

from app.api.schemas.common import JsonValue, Metadata, RequestModel, ResponseModel, Str, Time
from app.api.schemas.messages import MessageOut, message_out
from app.commands.tickets.decision_types import DecisionRequest, DecisionResult
from app.commands.tickets.rejections import REFUSED_ID
from app.domain.rules.remembered import Match, Remember, RuleScope
from app.domain.tickets.decisions import Action, Decision
from app.domain.tickets.decisions import DecisionAnswer as Given
from app.domain.tickets.tickets import Ticket
from app.queries.inbox import TicketView

_EXAMPLE: JsonDict = {
    "decisions": [
        {"ticket_id": "call_1", "action": "approve"},
        {"ticket_id": "call_2", "action": "reject", "reason": "Not on a Friday."},
    ]
}


class TicketOut(ResponseModel):
    """A question about one exact call. Answer it with POST /v1/runs/{run_id}/decisions."""

    id: str
    ticket_id: str = Field(description="Its name within the run.")
    run_id: str
    thread_id: str
    agent_id: str
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
    event: "EventOut | None" = Field(description="What a ticket of kind `event` waits for.")
    approvers: "ApproversOut | None" = Field(description="Who may answer, when not everybody may.")
    expires_at: Time | None
    on_expiry: str | None = Field(description="reject, cancel_run or keep.")
    decision: "DecisionOut | None"
    applied_at: Time | None
    created_at: Time
    updated_at: Time


class EventOut(ResponseModel):
    """A signal of this name and key answers the ticket: POST /v1/signals."""

    name: str
    key: str


class ApproversOut(ResponseModel):
    """Holders of the scope, not whoever started the run, and so many of them."""

    scope: str | None
    not_starter: bool
    quorum: int


class DecisionOut(ResponseModel):
    decision_id: str
    action: str
    payload: Any
    reason: str | None
    decided_by: str
    decided_at: Time


def ticket_out(ticket: Ticket) -> TicketOut:
    decision, approvers = ticket.decision, ticket.terms.approvers
    return TicketOut(
        id=ticket.id,
        ticket_id=ticket.name,
        run_id=ticket.run_id,
        thread_id=ticket.thread_id,
        agent_id=ticket.agent_id,
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
        event=None
        if ticket.event is None
        else EventOut(name=ticket.event.name, key=ticket.event.key),
        approvers=None
        if approvers is None
        else ApproversOut(
            scope=approvers.scope, not_starter=approvers.not_starter, quorum=approvers.quorum
        ),
        expires_at=ticket.expires_at,
        on_expiry=None if ticket.expires_at is None else ticket.terms.on_expiry.value,
        decision=None if decision is None else decision_out(decision),
        applied_at=ticket.applied_at,
        created_at=ticket.created_at,
        updated_at=ticket.updated_at,
    )


def decision_out(decision: Decision) -> DecisionOut:
    return DecisionOut(
        decision_id=decision.decision_id,
        action=decision.answer.action.value,
        payload=decision.answer.payload,
        reason=decision.answer.reason,
        decided_by=decision.subject,
        decided_at=decision.at,
    )


class TicketRunOut(ResponseModel):
    """The run that asks."""

    run_id: str
    status: Literal["created", "running", "waiting", "done"]
    agent_version: str
    started_by: str
    created_at: Time
    metadata: dict[str, Any]


class ToolOut(ResponseModel):
    """What the call would run."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: str


class SimilarDecisionOut(ResponseModel):
    """A call of the same tool by the same agent, and what became of it."""

    id: str
    run_id: str
    status: Literal["open", "decided", "expired", "void"]
    arguments: Any
    same_arguments: bool
    decision: DecisionOut | None
    created_at: Time


class TicketPageOut(TicketOut):
    """A ticket with all that an approver needs: who asks, what was said, what was decided before."""

    run: TicketRunOut
    agent_description: str
    tool: ToolOut | None = Field(description="null when the agent isn't to be had here any more.")
    last_messages: list[MessageOut] = Field(description="Of the thread, oldest first.")
    similar: list[SimilarDecisionOut] = Field(description="Newest first.")


def ticket_page_out(page: TicketView) -> TicketPageOut:
    run, tool = page.run, page.tool
    return TicketPageOut(
        **ticket_out(page.ticket).__dict__,
        run=TicketRunOut(
            run_id=run.id,
            status=run.status.value,
            agent_version=page.agent_version,
            started_by=run.started_by,
            created_at=run.created_at,
            metadata=dict(run.metadata),
        ),
        agent_description=page.agent_description,
        tool=None
        if tool is None
        else ToolOut(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            effect=tool.effect.value,
        ),
        last_messages=[message_out(entry) for entry in page.last_messages],
        similar=[_alike_out(other, page.ticket) for other in page.similar],
    )


def _alike_out(other: Ticket, ticket: Ticket) -> SimilarDecisionOut:
    return SimilarDecisionOut(
        id=other.id,
        run_id=other.run_id,
        status=other.status.value,
        arguments=other.arguments,
        same_arguments=other.args_digest == ticket.args_digest,
        decision=None if other.decision is None else decision_out(other.decision),
        created_at=other.created_at,
    )


class RememberIn(RequestModel):
    """Which calls are meant: all of the tool, or those with exactly the same arguments."""

    scope: RuleScope
    match: Match = Match.TOOL


class DecisionIn(RequestModel):
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
    remember: RuleScope | RememberIn | None = Field(
        None,
        description="With `approve` or `reject`: answer calls like this one the same from now on, in "
        "this run, in this thread, or wherever the agent is at work.",
    )

    @model_validator(mode="after")
    def _fields_fit_the_action(self) -> "DecisionIn":
        given = self.model_fields_set
        if (self.decision_id or "").startswith(REFUSED_ID):
            raise ValueError(f"a `decision_id` can't begin with {REFUSED_ID!r}")
        if (self.action is Action.EDIT) != (self.arguments is not None):
            raise ValueError("`arguments` belong to the action `edit`, which needs them")
        if self.action is Action.RESPOND and "result" not in given:
            raise ValueError("the action `respond` needs a `result` (null is one)")
        if "result" in given and self.action not in (Action.RESPOND, Action.CANCEL):
            raise ValueError("`result` belongs to the actions `respond` and `cancel`")
        if self.remember is not None and self.action not in (Action.APPROVE, Action.REJECT):
            raise ValueError("`remember` belongs to the actions `approve` and `reject`")
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
            remember=self._remember(),
        )

    def _remember(self) -> Remember | None:
        if isinstance(self.remember, RememberIn):
            return Remember(self.remember.scope, self.remember.match)
        return None if self.remember is None else Remember(self.remember)


class DecisionsIn(RequestModel):
    """Answers to one or several tickets of a run: all of them take effect, or none."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    decisions: list[DecisionIn] = Field(min_length=1, max_length=100)


class DecisionResultOut(ResponseModel):
    id: str
    ticket_id: str
    status: Literal["accepted", "duplicate"]
    votes_missing: int = Field(
        description="People who have to answer the same before it counts; 0 when it does."
    )
    action: str
    decision_id: str
    decided_by: str
    decided_at: Time
    rule_id: str | None = Field(description="The rule that `remember` has made.")


def decision_result_out(result: DecisionResult) -> DecisionResultOut:
    return DecisionResultOut(
        id=result.ticket.id,
        ticket_id=result.ticket.name,
        status="duplicate" if result.is_duplicate else "accepted",
        votes_missing=result.votes_missing,
        action=result.decision.answer.action.value,
        decision_id=result.decision.decision_id,
        decided_by=result.decision.subject,
        decided_at=result.decision.at,
        rule_id=result.rule.id if result.rule is not None and result.counts else None,
    )
