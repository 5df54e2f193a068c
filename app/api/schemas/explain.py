"""Why a run is where it is, as clients read it."""

from typing import Literal

from pydantic import Field

from app.api.schemas.common import ResponseModel, Time
from app.api.schemas.tickets import TicketOut, ticket_out
from app.domain.runs.runs import Done, RunRecord
from app.domain.runs.terminations import outcome
from app.queries.explain import Explanation, ReasonCode


class ReasonOut(ResponseModel):
    code: ReasonCode
    text: str = Field(description="What it means, and what to do about it.")


class OwnerOut(ResponseModel):
    """The process that executes the run, or did when it was last heard of."""

    worker_id: str
    host: str
    pid: int
    last_heartbeat_at: Time
    is_alive: bool


class FailureOut(ResponseModel):
    code: str
    detail: str


class DescendantRunOut(ResponseModel):
    run_id: str
    parent_run_id: str | None
    thread_id: str
    agent_id: str
    depth: int
    status: Literal["created", "running", "waiting", "done"]
    outcome: str | None


class ExplanationOut(ResponseModel):
    run_id: str
    thread_id: str
    state: Literal["created", "running", "waiting", "done"]
    reasons: list[ReasonOut]
    queue_position: int | None = Field(description="Its place in the line for its thread.")
    active_run_id: str | None = Field(description="The run that occupies the thread before it.")
    owner: OwnerOut | None
    waiting_on: list[TicketOut] = Field(
        description="Tickets that keep it, the run before it, or a run below it."
    )
    next_attempt_at: Time | None
    last_failure: FailureOut | None
    below: list[DescendantRunOut] = Field(
        description="The runs that it has started, and that those have: each after its parent."
    )


def explanation_out(found: Explanation) -> ExplanationOut:
    owner, failure = found.owner, found.last_failure
    return ExplanationOut(
        run_id=found.run.id,
        thread_id=found.run.thread_id,
        state=found.run.status.value,
        reasons=[ReasonOut(code=reason.code, text=reason.text) for reason in found.reasons],
        queue_position=found.queue_position,
        active_run_id=found.active_run_id,
        owner=None
        if owner is None
        else OwnerOut(
            worker_id=owner.id,
            host=owner.host,
            pid=owner.pid,
            last_heartbeat_at=owner.heartbeat_at,
            is_alive=owner.is_alive,
        ),
        waiting_on=[ticket_out(ticket) for ticket in found.waiting_on],
        next_attempt_at=found.next_attempt_at,
        last_failure=None
        if failure is None
        else FailureOut(code=failure.code, detail=failure.detail),
        below=[_run_below_out(record) for record in found.descendants],
    )


def _run_below_out(record: RunRecord) -> DescendantRunOut:
    state = record.state
    return DescendantRunOut(
        run_id=record.id,
        parent_run_id=record.lineage.parent_run_id,
        thread_id=record.thread_id,
        agent_id=record.agent_id,
        depth=record.lineage.depth,
        status=record.status.value,
        outcome=outcome(state.termination).value if isinstance(state, Done) else None,
    )
