"""Explanations: why a run is where it is."""

from typing import Literal

from pydantic import Field

from app.api.schemas.common import ResponseModel, Time
from app.api.schemas.tickets import TicketOut, ticket_out
from app.domain.runs.runs import Done, RunRecord
from app.domain.runs.terminations import outcome
from app.queries.explain import Explanation, ReasonCode


class ReasonOut(ResponseModel):
    """A reason why the run is where it is."""

    code: ReasonCode
    text: str = Field(description="What the code means, and what to do.")


class OwnerOut(ResponseModel):
    """The worker that executes the run, or did before its heartbeats stopped."""

    worker_id: str
    host: str
    pid: int
    last_heartbeat_at: Time
    is_alive: bool


class FailureOut(ResponseModel):
    """The latest failure of an activation."""

    code: str
    detail: str


class DescendantRunOut(ResponseModel):
    """A child run, or a child of one."""

    run_id: str
    parent_run_id: str | None
    thread_id: str
    agent_id: str
    depth: int
    status: Literal["created", "running", "waiting", "done"]
    outcome: str | None


class ExplanationOut(ResponseModel):
    """Why the run is where it is."""

    run_id: str
    thread_id: str
    state: Literal["created", "running", "waiting", "done"]
    reasons: list[ReasonOut]
    queue_position: int | None = Field(
        description="Position in the thread's queue, from 1; null if it isn't queued."
    )
    active_run_id: str | None = Field(
        description="The run that occupies the thread; null if none does."
    )
    owner: OwnerOut | None
    waiting_on: list[TicketOut] = Field(
        description="Open tickets of the run, of the run before it, and of its descendants."
    )
    next_attempt_at: Time | None
    last_failure: FailureOut | None
    below: list[DescendantRunOut] = Field(
        description="Child runs and their children, each after its parent."
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
        below=[_descendant_out(record) for record in found.descendants],
    )


def _descendant_out(record: RunRecord) -> DescendantRunOut:
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
