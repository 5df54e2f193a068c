"""Runs, as clients start and read them."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from app.agents.file_schema import MAX_SECONDS
from app.api.schemas.common import Metadata, RequestModel, ResponseModel, Str, Time, Uuid
from app.api.schemas.limits import LimitedRequest, RunLimitsOut, UsedOut, run_limits_out, used_out
from app.api.schemas.messages import MessageOut, NewMessage
from app.api.schemas.overrides import OverridesIn
from app.api.schemas.tickets import DecisionResultOut, TicketOut
from app.commands.runs.new_run import IfThreadMissing, OnActive
from app.commands.runs.retry import VersionOfAgent
from app.domain.json_values import digest
from app.domain.runs.identity import session_id, waits_since
from app.domain.runs.pauses import PauseRequest
from app.domain.runs.rate_limits import waits_of
from app.domain.runs.runs import Done, RunRecord, Waiting
from app.domain.runs.terminations import outcome, termination_to_json
from app.domain.threads.messages import MessageRange
from app.domain.tickets.terms import OnExpiry
from app.domain.tickets.tickets import ticket_to_json, waiting_to_json
from app.queries.records import RunView
from app.tools.frontend import MAX_FRONTEND_TOOLS, problem_of_parameters
from app.tools.schemas.subset import problem_of_size

_EXAMPLE: JsonDict = {
    "agent_id": "demo",
    "messages": [{"role": "user", "content": "Please delete /tmp/old-report.txt"}],
}


class TicketPolicyIn(RequestModel):
    """How long this run's tickets wait, in place of what its agent says."""

    expires_in: float | None = Field(
        None, gt=0, le=MAX_SECONDS, description="Seconds until nobody needs to answer any more."
    )
    on_expiry: OnExpiry | None = Field(
        None,
        description="Tell the model that nobody answered, cancel the run, or keep the ticket open.",
    )


def _usable(parameters: dict[str, Any]) -> dict[str, Any]:
    problem = problem_of_parameters(parameters)
    if problem is not None:
        raise PydanticCustomError("schema_unsupported", "{problem}", {"problem": problem})
    return parameters


def _of_bounded_size(tools: Any) -> Any:
    """Before any of them is compiled: together they may take no longer than one."""
    problem = problem_of_size(tools)
    if problem is not None:
        raise PydanticCustomError("schema_unsupported", "{problem}", {"problem": problem})
    return tools


class FrontendToolIn(RequestModel):
    """Something that the client can do itself. A call of it waits until the client sends its result."""

    name: Str = Field(validation_alias=AliasChoices("name", "id"), pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: Str = Field("", max_length=4000)
    parameters: Annotated[Metadata, AfterValidator(_usable)] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="JSON Schema of the arguments. References stay within it.",
    )


def _all_different(tools: list[FrontendToolIn]) -> list[FrontendToolIn]:
    if len({tool.name for tool in tools}) < len(tools):
        raise ValueError("two of them have the same name")
    return tools


class StartIn(LimitedRequest):
    """What to run, on which thread, with which messages."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    agent_id: Str | None = Field(
        None,
        validation_alias=AliasChoices("agent_id", "agentId"),
        min_length=1,
        max_length=200,
        description="Who runs; without it, the agent that was last at work on the thread.",
    )
    thread_id: Uuid | None = Field(
        None,
        validation_alias=AliasChoices("thread_id", "threadId"),
        description="The conversation to continue; a new one when absent or unknown.",
    )
    run_id: Uuid | None = Field(
        None,
        validation_alias=AliasChoices("run_id", "runId"),
        description="Your id for the run: starting it again with the same body changes nothing.",
    )
    messages: list[NewMessage] = Field(min_length=1, max_length=1000)
    on_active: OnActive = Field(
        OnActive.ENQUEUE,
        description="When another run occupies the thread. `enqueue`: wait behind it; `reject`: be "
        "refused with 409 `thread_busy`; `interrupt`: have it cancelled, and wait in line; `rollback`: "
        "the same, and its messages, answers and results don't count for any run after it (they stay "
        "in the log, marked; what its tools have done outside can't be undone); `steer`: let it have "
        "the messages, and be told of that run.",
    )
    if_thread_missing: IfThreadMissing = IfThreadMissing.CREATE
    metadata: Metadata = Field(default_factory=dict)
    ticket_policy: TicketPolicyIn | None = None
    overrides: OverridesIn | None = Field(
        None, description="How this run's model is asked, in place of what its agent says."
    )
    frontend_tools: Annotated[
        list[FrontendToolIn],
        Field(max_length=MAX_FRONTEND_TOOLS),
        BeforeValidator(_of_bounded_size),
        AfterValidator(_all_different),
    ] = Field(
        default_factory=list,
        description="Tools that the client carries out: a call of one is a ticket to respond to.",
    )

    @model_validator(mode="after")
    def _an_id_is_of_a_new_run(self) -> Self:
        if self.run_id is not None and self.on_active is OnActive.STEER:
            raise ValueError(
                "run_id names a new run, and steer may start none; send an Idempotency-Key instead"
            )
        return self

    def fingerprint(self) -> str:
        """The same for a repetition of this request, whatever order its fields came in."""
        body = {**self.model_dump(mode="json", exclude={"run_id"}), "limits": self.requested_limits}
        for name in ("overrides", "frontend_tools", "ticket_policy", "limits", "on_limit"):
            # A field that came later counts only when it is used: older requests keep their fingerprint.
            if not body[name]:
                del body[name]
        return digest(body)


class RangeOut(ResponseModel):
    from_seq: int
    to_seq: int


class InputOut(ResponseModel):
    """The part of the thread's log that the run was started with."""

    thread_id: str
    range: RangeOut | None
    trigger_message_ids: list[str]


class OutputOut(ResponseModel):
    """The part of the thread's log that the run has written."""

    thread_id: str
    range: RangeOut | None
    message_ids: list[str]


class PauseOut(ResponseModel):
    """Who has paused the run, and why."""

    requested_at: Time
    requested_by: str
    reason: str | None


class RunOut(ResponseModel):
    """A run as it stands now."""

    run_id: str
    thread_id: str
    agent_id: str
    agent_version: str
    parent_run_id: str | None
    root_run_id: str
    retry_of: str | None = Field(description="The failed run in whose place it was started.")
    status: Literal["created", "running", "waiting", "done"]
    outcome: str | None = Field(description="How it went, in one word, once it is done.")
    termination: dict[str, Any] | None = Field(description="Why it ended: type, code, detail.")
    waiting: dict[str, Any] | None = Field(
        description="What it waits for, with the open tickets, and those of children that it waits for. "
        "`until` is there with the reason `rate_limit`: the run resumes then, without a person."
    )
    final_output: str | None
    cancel_requested_at: Time | None
    pause: PauseOut | None = Field(
        description="The pause request of a run that hasn't ended. A run that executes suspends at its "
        "next step border; one that waits isn't executed before it is resumed."
    )
    rolled_back_by: str | None = Field(
        description="The run that was started in its place. Once this one is done, what it has added "
        "to the conversation doesn't count any more; what its tools have done stays done."
    )
    request: dict[str, Any]
    input: InputOut | None
    output: OutputOut
    steps: int
    input_tokens: int
    output_tokens: int
    limits: RunLimitsOut | None = Field(description="null when it was started without any.")
    used: UsedOut
    metadata: dict[str, Any]
    started_by: str
    attempt: int
    dispatch_id: str | None
    session_id: str = Field(description="The attempt that executes it, or did last.")
    transport_request_id: str | None = Field(
        description="`X-Request-Id` of the request that started it."
    )
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    updated_at: Time
    state: dict[str, Any] | None = Field(None, description="Only with ?include=state.")


def run_out(view: RunView | RunRecord, *, with_state: bool = False) -> RunOut:
    record = view.run if isinstance(view, RunView) else view
    state = record.state
    done = state if isinstance(state, Done) else None
    return RunOut(
        run_id=record.id,
        thread_id=record.thread_id,
        agent_id=record.agent_id,
        agent_version=record.agent_version,
        parent_run_id=record.lineage.parent_run_id,
        root_run_id=record.lineage.root_run_id,
        retry_of=record.lineage.retry_of,
        status=record.status.value,
        outcome=None if done is None else outcome(done.termination).value,
        termination=None if done is None else termination_to_json(done.termination),
        waiting=_waiting(view, record, state) if isinstance(state, Waiting) else None,
        final_output=None if done is None else done.final_output,
        cancel_requested_at=record.cancel_requested_at,
        pause=None if done is not None or record.pause is None else _pause_out(record.pause),
        rolled_back_by=record.rolled_back_by,
        request=dict(record.request),
        input=None
        if record.input is None
        else InputOut(
            thread_id=record.thread_id,
            range=_range(record.input.range),
            trigger_message_ids=list(record.input.trigger_message_ids),
        ),
        output=OutputOut(
            thread_id=record.thread_id,
            range=_range(record.output.range),
            message_ids=list(record.output.message_ids),
        ),
        steps=record.steps,
        input_tokens=record.usage.input_tokens,
        output_tokens=record.usage.output_tokens,
        limits=run_limits_out(record),
        used=used_out(record),
        metadata=dict(record.metadata),
        started_by=record.started_by,
        attempt=record.attempt,
        dispatch_id=record.dispatch_id,
        session_id=session_id(record),
        transport_request_id=record.transport_request_id,
        created_at=record.created_at,
        started_at=record.started_at,
        finished_at=None if done is None else done.finished_at,
        updated_at=record.updated_at,
        state=dict(record.run_state or {}) if with_state else None,
    )


def _pause_out(pause: PauseRequest) -> PauseOut:
    return PauseOut(
        requested_at=pause.requested_at, requested_by=pause.requested_by, reason=pause.reason
    )


def _waiting(view: RunView | RunRecord, record: RunRecord, state: Waiting) -> dict[str, Any]:
    tickets = view.open_tickets if isinstance(view, RunView) else ()
    body = waiting_to_json(
        state.reason,
        state.message,
        tickets,
        waits_since(record),
        until=state.until,
        detail=waits_of(record.run_state).newest,
    )
    if not isinstance(view, RunView):
        # Nobody has looked for tickets, which isn't the same as that there are none.
        return {key: value for key, value in body.items() if key not in ("ticket_ids", "tickets")}
    if view.tickets_below:
        body["tickets_of_children"] = [
            {**ticket_to_json(ticket), "run_id": ticket.run_id} for ticket in view.tickets_below
        ]
    return body


def _range(found: MessageRange | None) -> RangeOut | None:
    return None if found is None else RangeOut(from_seq=found.from_seq, to_seq=found.to_seq)


class SnapshotHead(ResponseModel):
    """A snapshot without its messages."""

    run: RunOut
    open_text: str = Field(description="What the assistant has said of a message still under way.")
    open_tool_calls: list[dict[str, Any]]
    tickets: list[TicketOut]
    last_event_id: int


class SnapshotOut(SnapshotHead):
    """Enough to draw a run at once; go on following after `last_event_id`."""

    messages: list[MessageOut]


class DecidedOut(ResponseModel):
    results: list[DecisionResultOut]
    open_tickets: list[TicketOut]
    run: RunOut


class CancelIn(RequestModel):
    reason: Str | None = Field(None, max_length=2000)


class PauseIn(RequestModel):
    reason: Str | None = Field(None, max_length=2000)


class RetryIn(LimitedRequest):
    """Without limits of its own the new run has those that the failed one was started with."""

    agent_version: VersionOfAgent = Field(
        VersionOfAgent.SAME,
        description="`same`: the version that failed; `current`: the one that there is now.",
    )


class EventsPage(ResponseModel):
    """Events as a list; the same objects that the stream sends."""

    items: list[dict[str, Any]]
    next_cursor: Annotated[str | None, Field(description="For `?after=`.")]
    has_more: bool
