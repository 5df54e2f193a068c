"""Parts that events and records of runs share: why a run ended, what it waits for, and the ids of its trace."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from app.api.schemas.common import ResponseModel, is_absent
from app.domain.runs.runs import WaitingReason
from app.domain.tools.tool_calls import Effect

Stamp = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


def absent(description: str) -> Any:
    """A field that is left out when it has no value."""
    return Field(None, exclude_if=is_absent, description=description)


class TerminationOut(ResponseModel):
    """Why a run ended. In the `run_finish` of a suspension the type is `suspended`."""

    type: Literal[
        "natural_end", "behavior_requested", "stopped", "cancelled", "blocked", "error", "suspended"
    ] = Field(description="Ignore types that you don't know: more may be added.")
    code: str | None = absent("Code of a limit, a stop condition or an error.")
    detail: str | None = absent("What happened, in words.")


class AwaitedSignalOut(ResponseModel):
    """The signal with this name and key answers the ticket; see POST /v1/signals."""

    name: str
    key: str


class ApproverRuleOut(ResponseModel):
    """Which subjects may decide, and how many have to agree."""

    scope: str | None = absent("Scope that a key needs for the decision.")
    not_starter: bool | None = absent("Whether the subject that started the run may not decide.")
    quorum: int | None = absent("How many subjects have to agree, if more than one.")


class OpenTicketOut(ResponseModel):
    """A ticket as a waiting run and `ticket_opened` show it. Fields without a value are left out."""

    id: str
    name: str = Field(description="Name of the ticket within its run, for readers.")
    run_id: str = Field(description="The run that asks: for a run above it, one of its children.")
    thread_id: str
    agent_id: str
    kind: str
    tool_call_id: str | None = absent("Id of the tool call.")
    tool_name: str
    tool_effect: Effect | None = absent(
        "Effect of the tool when the call was made: `read`, `idempotent` or `unsafe`."
    )
    arguments: Any = absent("Arguments of the call.")
    args_digest: str = Field(
        description="Digest of the arguments. Send it with a decision to approve exactly these."
    )
    resume_mode: str
    allowed_actions: list[str]
    response_schema: dict[str, Any] | None = absent("JSON Schema of an answer.")
    reason: str | None = absent("Why the call needs a decision.")
    message: str
    evidence: dict[str, Any] | None = absent("What is known about a call of unknown outcome.")
    event: AwaitedSignalOut | None = absent("The signal that a ticket of kind `event` waits for.")
    approvers: ApproverRuleOut | None = absent("Who may decide; absent if there is no rule.")
    expires_at: Stamp | None = absent("When the ticket expires.")
    expires_in: float | None = absent("Seconds until the ticket expires.")
    on_expiry: str | None = absent(
        "What happens when it expires: `reject`, `cancel_run` or `keep`."
    )
    updated_at: Stamp


class WaitOut(ResponseModel):
    """What a run waits for."""

    reason: WaitingReason
    needs_decision: bool | None = absent(
        "Whether a person has to act: decide a ticket, or resume a paused run. Any other wait ends by itself."
    )
    tickets: list[OpenTicketOut] | None = absent(
        "The open tickets of the run and of the runs below it. Absent where they weren't read."
    )
    has_more_tickets: bool | None = absent(
        "True if more tickets are open than there is room for; GET /v1/tickets lists all."
    )
    until: Stamp | None = absent("When a run that waits for a rate limit resumes.")
    detail: str | None = absent("What the model's provider said about its limit.")
    since_dispatch_id: str | None = absent(
        "The delivery or session in which the run suspended. Only with `include=trace`."
    )


class ChildOut(ResponseModel):
    """The run below this one that asks."""

    run_id: str
    thread_id: str
    agent_id: str


class NamedTicketOut(ResponseModel):
    """A ticket as `run_finish` names it. Its `ticket_opened` has the rest."""

    id: str
    name: str = Field(description="Name of the ticket within its run, for readers.")
    title: str = Field(description="First line of its message.")
    child: ChildOut | None = absent("The run that asks, if it is one below this run.")


class SuspensionOut(ResponseModel):
    """What a suspended run waits for, as `run_finish` says it."""

    reason: WaitingReason
    needs_decision: bool = Field(
        description="Whether a person has to act: decide a ticket, or resume a paused run."
    )
    tickets: list[NamedTicketOut] = Field(description="The tickets that people decide.")
    until: Stamp | None = absent("When a run that waits for a rate limit resumes.")
    detail: str | None = absent("More about the wait, in words.")
    since_dispatch_id: str | None = absent(
        "The delivery or session in which the run suspended. Only with `include=trace`."
    )


class FinishResultOut(ResponseModel):
    """The answer of a run, and what a remote agent returned besides."""

    response: str | None = absent("The text of the answer.")
    output: dict[str, Any] | None = absent("`text`, `artifacts` and `raw` of a remote agent.")


class RunIdentityOut(ResponseModel):
    """The ids of a run and of its trace. Only with `include=trace`."""

    thread_id: str
    run_id: str
    agent_id: str
    parent_thread_id: str | None = absent("The thread of the run above.")
    parent_run_id: str | None = absent("The run above.")
    parent_tool_call_id: str | None = absent("The call of the run above that started this run.")
    dispatch_id: str | None = absent("The queue delivery that began the activation.")
    session_id: str = Field(description="Identifies the latest execution of the run.")
    transport_request_id: str | None = absent("`X-Request-Id` of the start.")
    origin: Literal["user", "subagent"] = Field(description="Whether a client or a run started it.")


class StoredRequestOut(ResponseModel):
    """The request that started a run, as it is stored. More fields may be added."""

    model_config = {**ResponseModel.model_config, "extra": "allow"}

    origin: str | None = absent("`User`, or `Subagent` for a delegate.")
    input_message_ids: list[str] | None = absent("Ids of the messages.")
    input_message_count: int | None = absent("Number of messages.")
    transport_request_id: str | None = absent("`X-Request-Id` of the start.")
    ticket_policy: dict[str, Any] | None = absent("When the run's tickets expire.")
    overrides: dict[str, Any] | None = absent("Model options of this run.")
    limits: dict[str, Any] | None = absent("Limits of this run.")
    ancestors: list[str] | None = absent("Agents of the runs above, beginning with the root.")


PARTS = (
    TerminationOut,
    OpenTicketOut,
    ChildOut,
    SuspensionOut,
    FinishResultOut,
    RunIdentityOut,
)
"""The parts that events refer to."""
