"""Tickets and decisions."""

from typing import Annotated, Any, Literal

from pydantic import AliasPath, BeforeValidator, Field, model_validator
from pydantic.config import JsonDict

from app.api.schemas.common import (
    JsonValue,
    Metadata,
    RequestModel,
    ResponseModel,
    Str,
    Time,
    Uuid,
)
from app.api.schemas.messages import MessageOut, message_out
from app.commands.tickets.decision_types import DecisionRequest, DecisionResult
from app.commands.tickets.rejections import REFUSED_ID
from app.domain.principals import Principal
from app.domain.rules.remembered import Match, Remember, RuleScope
from app.domain.tickets.decisions import Action
from app.domain.tickets.decisions import DecisionAnswer as Given
from app.domain.tickets.listed import ListedTicket
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import Effect
from app.queries.inbox import TicketView, obstacle

_EXAMPLE: JsonDict = {
    "decisions": [
        {"ticket_id": "01a1f250-cfef-74f4-9006-63218c79860a", "action": "approve"},
        {"tool_call_id": "call_2", "action": "reject", "reason": "Not on a Friday."},
    ]
}


class TicketOut(ResponseModel):
    """A question about one tool call. Decide it with POST /v1/runs/{run_id}/decisions."""

    id: str
    name: str = Field(description="Name of the ticket within its run, for readers.")
    run_id: str = Field(description="The run that asks: for a run above it, one of its children.")
    thread_id: str
    agent_id: str
    kind: str
    status: Literal["open", "decided", "expired", "void"]
    tool_call_id: str | None = Field(validation_alias="call_id")
    tool_name: str
    tool_effect: Effect | None = Field(
        description="Effect of the tool when the call was made: `read`, `idempotent` or `unsafe`. null if the ticket "
        "is about no call of a tool."
    )
    arguments: Any
    args_digest: str = Field(
        description="Digest of the arguments. Send it with a decision to approve exactly these."
    )
    resume_mode: str
    allowed_actions: Annotated[list[str], BeforeValidator(sorted)]
    response_schema: dict[str, Any] | None
    reason: str | None
    message: str
    evidence: dict[str, Any] | None
    event: "AwaitedEventOut | None" = Field(
        description="The signal that a ticket of kind `event` waits for."
    )
    approvers: "ApproversOut | None" = Field(
        validation_alias=AliasPath("terms", "approvers"),
        description="Who may decide; null if every holder of `decisions:write` may.",
    )
    expires_at: Time | None
    on_expiry: str | None = Field(
        description="What happens when it expires: `reject`, `cancel_run` or `keep`."
    )
    decision: "DecisionOut | None"
    applied_at: Time | None
    created_at: Time
    updated_at: Time


class TicketCountOut(ResponseModel):
    """A number of tickets."""

    count: int = Field(description="The number of tickets. It ends at 1,000.")
    is_exact: bool = Field(description="Whether there are no more: false beyond 1,000 tickets.")


class AwaitedEventOut(ResponseModel):
    """The signal with this name and key answers the ticket; see POST /v1/signals."""

    name: str
    key: str


class ApproversOut(ResponseModel):
    """Which subjects may decide, and how many have to agree."""

    scope: str | None
    not_starter: bool
    quorum: int


class DecisionOut(ResponseModel):
    """The decision about a ticket."""

    id: str = Field(validation_alias="decision_id")
    action: str = Field(validation_alias=AliasPath("answer", "action"))
    payload: Any = Field(validation_alias=AliasPath("answer", "payload"))
    reason: str | None = Field(validation_alias=AliasPath("answer", "reason"))
    decided_by: str = Field(validation_alias="subject")
    decided_at: Time = Field(validation_alias="at")


class TicketRunOut(ResponseModel):
    """The run of the ticket."""

    id: str
    status: Literal["created", "running", "waiting", "done"]
    agent_version: str
    started_by: str
    created_at: Time
    metadata: dict[str, Any]


class ToolOut(ResponseModel):
    """The tool that the call would run."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: str


class SimilarDecisionOut(ResponseModel):
    """An earlier ticket about the same tool and agent, with its decision."""

    id: str
    run_id: str
    status: Literal["open", "decided", "expired", "void"]
    arguments: Any
    same_arguments: bool
    decision: DecisionOut | None
    created_at: Time


class VoteOut(ResponseModel):
    """An approval that counts toward the quorum of a ticket."""

    id: str = Field(validation_alias="decision_id")
    action: str = Field(validation_alias=AliasPath("answer", "action"))
    reason: str | None = Field(validation_alias=AliasPath("answer", "reason"))
    decided_by: str = Field(validation_alias="subject")
    decided_at: Time = Field(validation_alias="at")


class MayDecideOut(ResponseModel):
    """Whether the caller may decide the ticket."""

    allowed: bool = Field(description="Whether the scopes and the approver rule allow it.")
    reason: str | None = Field(description="What is missing; null if nothing is.")


class TicketLineageOut(ResponseModel):
    """Who started the run that asks, and the runs above it."""

    started_by: str
    parent_run_id: str | None = Field(description="The run that started it; null for a root.")
    root_run_id: str = Field(description="The first run of its tree; for a root, the run itself.")
    root_agent_id: str = Field(description="The agent of that run.")


class ListedTicketOut(TicketOut):
    """A ticket in a list: with the votes so far, the runs above it, and whether you may decide it."""

    lineage: TicketLineageOut = Field(description="Who started its run, and the runs above it.")
    votes: list[VoteOut] = Field(
        description="Approvals so far that count toward the quorum, oldest first."
    )
    may_decide: MayDecideOut = Field(
        description="Whether the caller may decide this ticket, and why not."
    )


def listed_ticket_out(principal: Principal, found: ListedTicket) -> ListedTicketOut:
    reason = obstacle(principal, found)
    return ListedTicketOut(
        **TicketOut.model_validate(found.ticket).__dict__,
        lineage=TicketLineageOut.model_validate(found.lineage),
        votes=[VoteOut.model_validate(vote) for vote in found.votes],
        may_decide=MayDecideOut(allowed=reason is None, reason=reason),
    )


class TicketDetailOut(ListedTicketOut):
    """A ticket with what an approver needs: the run, its last messages, and earlier decisions."""

    run: TicketRunOut
    agent_description: str
    tool: ToolOut | None = Field(
        description="The tool; null if this server no longer has the agent."
    )
    last_messages: list[MessageOut] = Field(
        description="The last messages of the thread, oldest first."
    )
    similar: list[SimilarDecisionOut] = Field(
        description="Tickets about similar calls, newest first."
    )


def ticket_detail_out(principal: Principal, page: TicketView) -> TicketDetailOut:
    ticket = page.listed.ticket
    return TicketDetailOut(
        **listed_ticket_out(principal, page.listed).__dict__,
        run=TicketRunOut.model_validate(page.run),
        agent_description=page.agent_description,
        tool=None if page.tool is None else ToolOut.model_validate(page.tool),
        last_messages=[message_out(entry) for entry in page.last_messages],
        similar=[_similar_out(other, ticket) for other in page.similar],
    )


def _similar_out(other: Ticket, ticket: Ticket) -> SimilarDecisionOut:
    return SimilarDecisionOut(
        id=other.id,
        run_id=other.run_id,
        status=other.status.value,
        arguments=other.arguments,
        same_arguments=other.args_digest == ticket.args_digest,
        decision=None if other.decision is None else DecisionOut.model_validate(other.decision),
        created_at=other.created_at,
    )


class RememberIn(RequestModel):
    """Which later calls get the same decision."""

    scope: RuleScope
    match: Match = Match.TOOL


class DecisionIn(RequestModel):
    """A decision. `approve` runs the call, `edit` runs it with other arguments, `respond` gives its result,
    `reject` denies it with a reason that the model reads, `cancel` drops it."""

    ticket_id: Uuid | None = Field(
        None,
        description="The `id` of the ticket: of this run, or of a run below it.",
    )
    tool_call_id: Str | None = Field(
        None,
        min_length=1,
        max_length=500,
        description="Instead of `ticket_id`: the tool call of this run that the ticket is about.",
    )
    action: Action
    decision_id: Str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Your id for this decision. The same decision again gets the same response.",
    )
    arguments: Metadata | None = Field(None, description="With `edit`: the new arguments.")
    result: JsonValue = Field(None, description="With `respond`: the call's result.")
    reason: Str | None = Field(None, max_length=4000)
    args_digest: Str | None = Field(None, max_length=200)
    remember: RuleScope | RememberIn | None = Field(
        None,
        description="With `approve` or `reject`: decide similar calls the same way from now on, in this "
        "run, in this thread, or for this agent.",
    )

    @model_validator(mode="after")
    def _fields_fit_the_action(self) -> "DecisionIn":
        given = self.model_fields_set
        if (self.ticket_id is None) == (self.tool_call_id is None):
            raise ValueError("name the ticket by `ticket_id` or by `tool_call_id`, not by both")
        if (self.decision_id or "").startswith(REFUSED_ID):
            raise ValueError(f"a `decision_id` can't begin with {REFUSED_ID!r}")
        if (self.action is Action.EDIT) != (self.arguments is not None):
            raise ValueError(
                "`arguments` are required with the action `edit`, and not allowed with others"
            )
        if self.action is Action.RESPOND and "result" not in given:
            raise ValueError("the action `respond` needs a `result`, which may be null")
        if "result" in given and self.action not in (Action.RESPOND, Action.CANCEL):
            raise ValueError("`result` is only allowed with the actions `respond` and `cancel`")
        if self.remember is not None and self.action not in (Action.APPROVE, Action.REJECT):
            raise ValueError("`remember` is only allowed with the actions `approve` and `reject`")
        return self

    def to_domain(self) -> DecisionRequest:
        return DecisionRequest(
            ticket=self.ticket_id or self.tool_call_id or "",
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
    """Decisions about tickets of a run. All of them take effect, or none."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    decisions: list[DecisionIn] = Field(min_length=1, max_length=100, fail_fast=True)


class DecisionsOfRunsIn(RequestModel):
    """Decisions about tickets of several runs. Those of one run take effect together, or none of them."""

    model_config = {
        "json_schema_extra": {"examples": [{"decisions": _EXAMPLE["decisions"][:1]}]}  # type: ignore[index]
    }

    decisions: list[DecisionIn] = Field(min_length=1, max_length=100)

    @model_validator(mode="after")
    def _each_names_its_ticket(self) -> "DecisionsOfRunsIn":
        if any(one.ticket_id is None for one in self.decisions):
            raise ValueError("each decision needs a `ticket_id`: a `tool_call_id` names no run")
        return self


class DecisionResultOut(ResponseModel):
    """What a decision did."""

    ticket_id: str
    status: Literal["accepted", "duplicate"]
    votes_missing: int = Field(
        description="Approvals that are still missing; 0 once the ticket is decided."
    )
    action: str
    decision_id: str
    decided_by: str
    decided_at: Time
    rule_id: str | None = Field(description="Id of the rule that `remember` created.")


def decision_result_out(result: DecisionResult) -> DecisionResultOut:
    return DecisionResultOut(
        ticket_id=result.ticket.id,
        status="duplicate" if result.is_duplicate else "accepted",
        votes_missing=result.votes_missing,
        action=result.decision.answer.action.value,
        decision_id=result.decision.decision_id,
        decided_by=result.decision.subject,
        decided_at=result.decision.at,
        rule_id=result.rule.id if result.rule is not None and result.counts else None,
    )


class RunDecisionsOut(ResponseModel):
    """What came of the decisions about one run."""

    run_id: str | None = Field(description="The run; null for tickets that weren't found.")
    ticket_ids: list[str] = Field(description="The tickets of the run that the request names.")
    results: list[DecisionResultOut] = Field(description="Empty if the decisions were refused.")
    error: dict[str, Any] | None = Field(
        description="Why none of the run's decisions took effect: the problem that "
        "POST /v1/runs/{run_id}/decisions would give. null if they did."
    )


class DecisionsOfRunsOut(ResponseModel):
    """What came of the decisions, run by run."""

    runs: list[RunDecisionsOut] = Field(
        description="One entry for each run, in the order of the request."
    )
