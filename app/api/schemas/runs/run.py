"""A run as responses show it."""

from typing import Any, Literal

from pydantic import (
    AliasPath,
    Field,
)

from app.api.included import NOTHING_INCLUDED, Included
from app.api.schemas.common import ResponseModel, Time, is_absent
from app.api.schemas.events.parts import StoredRequestOut, TerminationOut, WaitOut
from app.api.schemas.limits import (
    ModelUsageOut,
    RunLimitsOut,
    UsedOut,
    run_limits_out,
)
from app.domain.runs.identity import SINCE_DISPATCH_ID, session_id, waits_since
from app.domain.runs.limits import used_by
from app.domain.runs.rate_limits import waits_of
from app.domain.runs.runs import Done, RunRecord, Waiting
from app.domain.runs.terminations import outcome, termination_to_json
from app.domain.tickets.ticket_json import ticket_to_json, waiting_to_json
from app.queries.records import RunView


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
