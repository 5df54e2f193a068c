"""Explanations: why a run is where it is."""

from typing import Annotated, Literal

from pydantic import AliasPath, BeforeValidator, Field

from app.api.schemas.common import ResponseModel, Time
from app.api.schemas.tickets import TicketOut
from app.domain.runs.runs import Done, RunState
from app.domain.runs.terminations import Outcome, outcome
from app.queries.explain_reasons import ReasonCode


class ReasonOut(ResponseModel):
    """A reason why the run is where it is."""

    code: ReasonCode
    text: str = Field(description="What the code means, and what to do.")


class OwnerOut(ResponseModel):
    """The worker that executes the run, or did before its heartbeats stopped."""

    id: str
    host: str
    pid: int
    last_heartbeat_at: Time = Field(validation_alias="heartbeat_at")
    is_alive: bool


class FailureOut(ResponseModel):
    """The latest failure of an activation."""

    code: str
    detail: str


def _outcome_of(state: RunState) -> Outcome | None:
    return outcome(state.termination) if isinstance(state, Done) else None


class DescendantRunOut(ResponseModel):
    """A child run, or a child of one."""

    id: str
    parent_run_id: str | None = Field(validation_alias=AliasPath("lineage", "parent_run_id"))
    thread_id: str
    agent_id: str
    depth: int = Field(validation_alias=AliasPath("lineage", "depth"))
    status: Literal["created", "running", "waiting", "done"]
    outcome: Annotated[str | None, BeforeValidator(_outcome_of)] = Field(validation_alias="state")


class ExplanationOut(ResponseModel):
    """Why the run is where it is."""

    run_id: str = Field(validation_alias=AliasPath("run", "id"))
    thread_id: str = Field(validation_alias=AliasPath("run", "thread_id"))
    status: Literal["created", "running", "waiting", "done"] = Field(
        validation_alias=AliasPath("run", "status")
    )
    outcome: Annotated[str | None, BeforeValidator(_outcome_of)] = Field(
        validation_alias=AliasPath("run", "state")
    )
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
        validation_alias="descendants",
        description="Child runs and their children, each after its parent.",
    )
