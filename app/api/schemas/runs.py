"""Runs: requests to start and control them, and how they are shown."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasPath,
    BeforeValidator,
    Field,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from app.agents.file_schema import MAX_SECONDS
from app.api.included import NOTHING_INCLUDED, Included
from app.api.schemas.common import Metadata, RequestModel, ResponseModel, Str, Time, Uuid, is_absent
from app.api.schemas.events.parts import StoredRequestOut, TerminationOut, WaitOut
from app.api.schemas.limits import (
    LimitedRequest,
    ModelUsageOut,
    RunLimitsOut,
    UsedOut,
    run_limits_out,
)
from app.api.schemas.messages import DifferentIds, MessageOut, NewMessage
from app.api.schemas.overrides import AnswerRequest, OverridesIn
from app.api.schemas.thread_names import ThreadNamed
from app.api.schemas.tickets import DecisionResultOut, TicketOut
from app.commands.runs.new_run import IfThreadMissing, OnActive
from app.commands.runs.retry import VersionOfAgent
from app.domain.ids import MessageId, RunId
from app.domain.json_values import compact, digest, utf8_size
from app.domain.runs.identity import SINCE_DISPATCH_ID, session_id, waits_since
from app.domain.runs.limits import used_by
from app.domain.runs.rate_limits import waits_of
from app.domain.runs.requested_answers import ANY_ANSWER
from app.domain.runs.runs import MAX_CONTEXT_BYTES, Done, RunRecord, Waiting
from app.domain.runs.terminations import outcome, termination_to_json
from app.domain.threads.replacements import FromMessage, FromRun, Replacement
from app.domain.tickets.terms import OnExpiry
from app.domain.tickets.ticket_json import ticket_to_json, waiting_to_json
from app.queries.records import RunView
from app.tools.frontend import MAX_FRONTEND_TOOLS, problem_of_parameters
from app.tools.schemas.subset import problem_of_size

_EXAMPLE: JsonDict = {
    "agent_id": "demo",
    "messages": [{"role": "user", "content": "Please delete /tmp/old-report.txt"}],
}


class TicketPolicyIn(RequestModel):
    """Overrides the agent's expiry of tickets for this run."""

    expires_in: float | None = Field(
        None, gt=0, le=MAX_SECONDS, description="Seconds until the ticket expires."
    )
    on_expiry: OnExpiry | None = Field(
        None,
        description="`reject` tells the model that no decision came, `cancel_run` cancels the run, `keep` "
        "leaves the ticket open.",
    )


def _usable(parameters: dict[str, Any]) -> dict[str, Any]:
    problem = problem_of_parameters(parameters)
    if problem is not None:
        raise PydanticCustomError("schema_unsupported", "{problem}", {"problem": problem})
    return parameters


def _check_total_size(tools: Any) -> Any:
    """Checks the size of all schemas together, before any of them is compiled."""
    problem = problem_of_size(tools)
    if problem is not None:
        raise PydanticCustomError("schema_unsupported", "{problem}", {"problem": problem})
    return tools


class FrontendToolIn(RequestModel):
    """A tool that the client executes. A call of it opens a ticket that waits for the result."""

    name: Str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: Str = Field("", max_length=4000)
    parameters: Annotated[Metadata, AfterValidator(_usable)] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="JSON Schema of the arguments. References stay within it.",
    )


def _all_different(tools: list[FrontendToolIn]) -> list[FrontendToolIn]:
    if len({tool.name for tool in tools}) < len(tools):
        raise ValueError("two frontend tools have the same name")
    return tools


def _bounded_context(context: dict[str, Any]) -> dict[str, Any]:
    size = utf8_size(compact(context))
    if size > MAX_CONTEXT_BYTES:
        raise ValueError(
            f"`context` has {size} bytes of JSON, and at most {MAX_CONTEXT_BYTES} are possible; send an id, and let "
            "the tools look the rest up"
        )
    return context


class ReplacesIn(RequestModel):
    """From where on the thread's conversation is replaced: a run or a message."""

    run_id: Uuid | None = Field(
        None,
        description="Replaces this run and all later ones, with the messages that they have read.",
    )
    message_id: Uuid | None = Field(
        None,
        description="Replaces this message, which a run was started with, and all later ones. Or the answer of the "
        "run that has written this message, and all later messages.",
    )

    @model_validator(mode="after")
    def _names_one_place(self) -> Self:
        if (self.run_id is None) == (self.message_id is None):
            raise ValueError("takes either `run_id` or `message_id`")
        return self


class StartIn(LimitedRequest, AnswerRequest, ThreadNamed):
    """What to run, on which thread, with which messages."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    agent_id: Str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="The agent that runs. Without it, the agent that last ran on the thread.",
    )
    thread_id: Uuid | None = Field(
        None,
        description="The thread to continue. A new thread if neither it nor `thread_key` is sent, or if "
        "it is unknown.",
    )
    run_id: Uuid | None = Field(
        None,
        description="Your id for the run. The same request again returns the same run.",
    )
    messages: Annotated[
        list[NewMessage], Field(min_length=1, max_length=1000, fail_fast=True), DifferentIds
    ] = Field(
        default_factory=list,
        description="What the run reads first. Required, except with `replaces`.",
    )
    replaces: ReplacesIn | None = Field(
        None,
        description="Replaces the end of the thread's conversation, which must have no unfinished run: later runs "
        "ignore it, as after a rollback. Without `messages`, the run reads again what the replaced run was "
        "started with. Without `agent_id`, the agent of the replaced run.",
    )
    on_active: OnActive = Field(
        OnActive.ENQUEUE,
        description="What to do if another run occupies the thread. `enqueue`: queue behind it. `reject`: "
        "409 `thread_busy`. `interrupt`: cancel it, and queue. `rollback`: the same, and later runs "
        "ignore its messages, which stay in the log, marked; effects of its tools aren't undone. "
        "`steer`: give it the messages, and return that run.",
    )
    if_thread_missing: IfThreadMissing = IfThreadMissing.CREATE
    metadata: Metadata = Field(default_factory=dict)
    context: Annotated[Metadata, AfterValidator(_bounded_context)] | None = Field(
        None,
        description="Data for the run's tools and plugins, which they may trust: `ctx.run.context`. It needs the "
        f"scope `runs:context`, has at most {MAX_CONTEXT_BYTES} bytes of JSON, and is neither shown to models nor "
        "in any response. Retries and delegates of the run have it too.",
    )
    ticket_policy: TicketPolicyIn | None = None
    overrides: OverridesIn | None = Field(
        None, description="Overrides the agent's model options for this run."
    )
    frontend_tools: Annotated[
        list[FrontendToolIn],
        Field(max_length=MAX_FRONTEND_TOOLS, fail_fast=True),
        BeforeValidator(_check_total_size),
        AfterValidator(_all_different),
    ] = Field(
        default_factory=list,
        description="Tools that the client executes. A call of one opens a ticket for its result.",
    )

    @model_validator(mode="after")
    def _has_messages(self) -> Self:
        if not self.messages and self.replaces is None:
            raise ValueError("`messages` are required; only a start with `replaces` may have none")
        return self

    @model_validator(mode="after")
    def _a_replacement_interrupts_nothing(self) -> Self:
        if self.replaces is not None and self.on_active not in (
            OnActive.ENQUEUE,
            OnActive.REJECT,
        ):
            raise ValueError(
                f"`replaces` can't be combined with `on_active` {self.on_active.value}: it is for threads that have "
                "no unfinished run; leave `on_active` out"
            )
        return self

    @model_validator(mode="after")
    def _an_id_is_of_a_new_run(self) -> Self:
        if self.run_id is not None and self.on_active is OnActive.STEER:
            raise ValueError(
                "`run_id` can't be combined with `steer`, which may start no run; send an Idempotency-Key instead"
            )
        return self

    @model_validator(mode="after")
    def _an_answer_is_of_a_new_run(self) -> Self:
        if self.on_active is OnActive.STEER and self.wanted_answer() is not ANY_ANSWER:
            raise ValueError(
                "`output`, `instructions`, `tool_choice` and `tools` can't be combined with `steer`, which may give "
                "the messages to a run that was started without them"
            )
        return self

    @model_validator(mode="after")
    def _a_context_is_of_a_new_run(self) -> Self:
        if self.context is not None and self.on_active is OnActive.STEER:
            raise ValueError(
                "`context` can't be combined with `steer`, which may give the messages to a run with another context"
            )
        return self

    def wanted_replacement(self) -> Replacement | None:
        replaced = self.replaces
        if replaced is None:
            return None
        if replaced.run_id is not None:
            return FromRun(RunId(replaced.run_id))
        return FromMessage(MessageId(str(replaced.message_id)))

    def fingerprint(self) -> str:
        """Equal for equal requests, also if their fields are in another order."""
        answer_fields = set(AnswerRequest.model_fields)
        body = {
            **self.model_dump(mode="json", exclude={"run_id", *answer_fields}),
            "limits": self.requested_limits,
            **self.used_answer_fields(),
        }
        for message in body["messages"]:
            if message["id"] is None:
                del message["id"]
        for name in (
            "overrides",
            "frontend_tools",
            "ticket_policy",
            "limits",
            "on_limit",
            "context",
            "thread_key",
            "replaces",
        ):
            # Newer fields count only if they are used, so that older requests keep their fingerprint.
            if not body[name]:
                del body[name]
        return digest(body)


class RangeOut(ResponseModel):
    from_seq: int
    to_seq: int


class InputOut(ResponseModel):
    """The messages that the run was started with, in the thread's log."""

    thread_id: str
    range: RangeOut | None = Field(validation_alias=AliasPath("input", "range"))
    trigger_message_ids: list[str] = Field(
        validation_alias=AliasPath("input", "trigger_message_ids")
    )


class OutputOut(ResponseModel):
    """The messages that the run has written, in the thread's log."""

    thread_id: str
    range: RangeOut | None = Field(validation_alias=AliasPath("output", "range"))
    message_ids: list[str] = Field(validation_alias=AliasPath("output", "message_ids"))


class PauseOut(ResponseModel):
    """Who paused the run, when and why."""

    requested_at: Time
    requested_by: str
    reason: str | None


class RunOut(ResponseModel):
    """The current state of a run."""

    id: str
    thread_id: str
    thread_key: str | None = Field(
        description="Your own name of the thread; null for a thread without one."
    )
    agent_id: str
    agent_version: str
    parent_run_id: str | None
    root_run_id: str
    retry_of_run_id: str | None = Field(description="The run that this one retries.")
    status: Literal["created", "running", "waiting", "done"]
    outcome: str | None = Field(description="How the run ended; null before that.")
    termination: TerminationOut | None = Field(
        description="Why the run ended: type, code and detail. null before that."
    )
    waiting: WaitOut | None = Field(
        description="What the run waits for, with its open tickets and those of its children; null unless "
        "it waits."
    )
    final_output: str | None
    structured_output: dict[str, Any] | None = Field(
        description="The final answer as data, if the run or its agent has an `output`."
    )
    cancel_requested_at: Time | None
    pause: PauseOut | None = Field(
        description="The pause request of an unfinished run. An executing run suspends after its current "
        "step. A waiting run isn't executed before it is resumed."
    )
    rolled_back_by_run_id: str | None = Field(
        description="The run that rolled this one back. Later runs ignore the messages of this one. "
        "Effects of its tools aren't undone."
    )
    input: InputOut | None
    output: OutputOut
    steps: int
    input_tokens: int
    output_tokens: int
    usage_by_model: list[ModelUsageOut] | None = Field(
        None,
        exclude_if=is_absent,
        description="The usage that providers bill, by model. Only with `include=usage`.",
    )
    limits: RunLimitsOut | None = Field(description="Limits of the run; null if it has none.")
    used: UsedOut
    metadata: dict[str, Any]
    started_by: str
    attempt: int
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    updated_at: Time
    state: dict[str, Any] | None = Field(
        None, exclude_if=is_absent, description="The run's state. Only with `include=state`."
    )
    request: StoredRequestOut | None = Field(
        None,
        exclude_if=is_absent,
        description="The stored request that started the run. Only with `include=trace`.",
    )
    session_id: str | None = Field(
        None,
        exclude_if=is_absent,
        description="Identifies the latest execution of the run. Only with `include=trace`.",
    )
    dispatch_id: str | None = Field(
        None,
        exclude_if=is_absent,
        description="Id of the queue delivery that started the current activation; absent if the server "
        "started it directly. Only with `include=trace`.",
    )
    transport_request_id: str | None = Field(
        None,
        exclude_if=is_absent,
        description="`X-Request-Id` of the request that started the run, if it had one. Only with "
        "`include=trace`.",
    )


def run_out(view: RunView | RunRecord, included: Included = NOTHING_INCLUDED) -> RunOut:
    record = view.run if isinstance(view, RunView) else view
    state = record.state
    done = state if isinstance(state, Done) else None
    return RunOut(
        id=record.id,
        thread_id=record.thread_id,
        thread_key=record.thread_key,
        agent_id=record.agent_id,
        agent_version=record.agent_version,
        parent_run_id=record.lineage.parent_run_id,
        root_run_id=record.lineage.root_run_id,
        retry_of_run_id=record.lineage.retry_of,
        status=record.status.value,
        outcome=None if done is None else outcome(done.termination).value,
        termination=None
        if done is None
        else TerminationOut(**termination_to_json(done.termination)),
        waiting=WaitOut(**_waiting(view, record, state, included))
        if isinstance(state, Waiting)
        else None,
        final_output=None if done is None else done.final_output,
        structured_output=None if done is None else done.structured_output,
        cancel_requested_at=record.cancel_requested_at,
        pause=None
        if done is not None or record.pause is None
        else PauseOut.model_validate(record.pause),
        rolled_back_by_run_id=record.rolled_back_by,
        input=None if record.input is None else InputOut.model_validate(record),
        output=OutputOut.model_validate(record),
        steps=record.steps,
        input_tokens=record.usage.input_tokens,
        output_tokens=record.usage.output_tokens,
        usage_by_model=_usage(view),
        limits=run_limits_out(record),
        used=UsedOut.model_validate(used_by(record)),
        metadata=dict(record.metadata),
        started_by=record.started_by,
        attempt=record.attempt,
        created_at=record.created_at,
        started_at=record.started_at,
        finished_at=None if done is None else done.finished_at,
        updated_at=record.updated_at,
        state=dict(record.run_state or {}) if included.state else None,
        **(_trace(record) if included.trace else {}),
    )


def _usage(view: RunView | RunRecord) -> list[ModelUsageOut] | None:
    if not isinstance(view, RunView) or view.usage is None:
        return None
    return [ModelUsageOut.model_validate(total) for total in view.usage]


def _trace(record: RunRecord) -> dict[str, Any]:
    return {
        "request": dict(record.shown_request),
        "session_id": session_id(record),
        "dispatch_id": record.dispatch_id,
        "transport_request_id": record.transport_request_id,
    }


def _waiting(
    view: RunView | RunRecord, record: RunRecord, state: Waiting, included: Included
) -> dict[str, Any]:
    tickets = view.open_tickets if isinstance(view, RunView) else ()
    body = waiting_to_json(
        state.reason,
        tickets,
        waits_since(record),
        until=state.until,
        detail=waits_of(record.run_state).newest,
    )
    if not included.trace:
        del body[SINCE_DISPATCH_ID]
    if not isinstance(view, RunView):
        # The tickets weren't read, so leave the fields out instead of showing none.
        return {key: value for key, value in body.items() if key != "tickets"}
    body["needs_decision"] = view.needs_decision
    body["tickets"] += [ticket_to_json(ticket) for ticket in view.tickets_below]
    if view.has_more_tickets:
        body["has_more_tickets"] = True
    return body


class ActivityOut(ResponseModel):
    """What a tool, a background task or a child is doing: its `activity_snapshot` with all patches applied."""

    message_id: str
    activity_type: str
    content: Any


class OpenToolCallOut(ResponseModel):
    """A tool call of the message that is being written, or one that has no result yet."""

    tool_call_id: str
    name: str
    arguments: str = Field(description="Arguments so far, as JSON text that may be incomplete.")


class OpenOutput(ResponseModel):
    """What a page shows of a run's unfinished work."""

    open_reasoning: str = Field(
        description="Reasoning so far of the message that is being written."
    )
    open_text: str = Field(description="Text so far of the message that is being written.")
    open_tool_calls: list[OpenToolCallOut]
    activities: list[ActivityOut] = Field(
        description="Present activities of the run, in the order in which they were first shown."
    )
    has_more_activities: bool = Field(
        description="Whether activities are left out because a snapshot has no room for them: those that have "
        "very many changes, and those that changed longest ago. The events have them all."
    )
    tickets: list[TicketOut]
    has_more_tickets: bool = Field(
        description="Whether more tickets are open than a snapshot has room for; GET /v1/tickets lists all."
    )
    last_event_id: int
    has_more_messages: bool = Field(
        description="Whether `messages` lacks older ones; GET /v1/threads/{thread_id}/messages lists all."
    )


class SnapshotHead(OpenOutput):
    """A snapshot without its messages."""

    run: RunOut


class SnapshotOut(SnapshotHead):
    """All that a client needs to show a run. Follow its events after `last_event_id`."""

    messages: list[MessageOut]


class DecidedOut(ResponseModel):
    """The results of the decisions, and the run after them."""

    results: list[DecisionResultOut]
    open_tickets: list[TicketOut]
    run: RunOut


class CancelIn(RequestModel):
    """Why the run is cancelled."""

    model_config = {"json_schema_extra": {"examples": [{"reason": "Wrong customer"}]}}

    reason: Str | None = Field(None, max_length=2000)


class PauseIn(RequestModel):
    """Why the run is paused."""

    model_config = {"json_schema_extra": {"examples": [{"reason": "Maintenance until 14:00"}]}}

    reason: Str | None = Field(None, max_length=2000)


class RetryIn(LimitedRequest):
    """Options of the new run. Without `limits` it gets those of the failed run."""

    model_config = {"json_schema_extra": {"examples": [{"agent_version": "current"}]}}

    agent_version: VersionOfAgent = Field(
        VersionOfAgent.SAME,
        description="`same`: the agent version of the failed run. `current`: the newest version.",
    )


class EventsPage(ResponseModel):
    """A page of events, in the form in which streams send them."""

    items: list[dict[str, Any]]
    next_cursor: str = Field(
        description="Id of the last event that was read. A client polls with it as `cursor`."
    )
    has_more: bool
