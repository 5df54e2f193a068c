"""Background tasks."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from app.api.schemas.common import ResponseModel, Time
from app.domain.children.background_tasks import TaskStatus
from app.domain.children.child_runs import ChildWork


def _run_id_of(child: ChildWork | None) -> str | None:
    return None if child is None else child.run_id


def _status_of(stored: TaskStatus) -> str:
    return "done" if stored.is_final else "running"


def _outcome_of(stored: TaskStatus) -> str | None:
    return stored.outcome


class TaskOut(ResponseModel):
    """A tool call that runs in the background. Its result is reported to its run."""

    id: str
    run_id: str
    thread_id: str
    tool_call_id: str = Field(validation_alias="call_id")
    tool_name: str
    arguments: dict[str, Any]
    status: Annotated[Literal["running", "done"], BeforeValidator(_status_of)]
    outcome: Annotated[
        Literal["succeeded", "failed", "cancelled"] | None, BeforeValidator(_outcome_of)
    ] = Field(validation_alias="status")
    result: Any
    error: str | None
    unread_messages: int = Field(description="Number of messages that the tool hasn't read.")
    attempt: int
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    reported_at: Time | None = Field(
        description="When its result was reported to the run; null if the run had ended."
    )
    updated_at: Time
    child_run_id: Annotated[str | None, BeforeValidator(_run_id_of)] = Field(
        validation_alias="child",
        description="The child run that executes the task; null for other tasks.",
    )
