"""Background tasks, as clients see them."""

from typing import Any, Literal

from pydantic import Field

from app.api.schemas.common import ResponseModel, Time
from app.domain.children.background_tasks import Task


class TaskOut(ResponseModel):
    """A tool call that goes on by itself. Its run is told when it ends."""

    id: str
    run_id: str
    thread_id: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    status: Literal["running", "completed", "failed", "cancelled"]
    result: Any
    error: str | None
    unread_messages: int = Field(description="Messages for it that its tool hasn't read.")
    attempt: int
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    reported_at: Time | None = Field(
        description="When its run was told of its end; never, when that was done before."
    )
    updated_at: Time
    child_run_id: str | None = Field(
        description="The run of another agent that the task is; it may not have begun yet."
    )


def task_out(task: Task) -> TaskOut:
    return TaskOut(
        id=task.id,
        run_id=task.run_id,
        thread_id=task.thread_id,
        tool_call_id=task.call_id,
        tool_name=task.tool_name,
        arguments=dict(task.arguments),
        status=task.status.value,
        result=task.result,
        error=task.error,
        unread_messages=task.unread_messages,
        attempt=task.attempt,
        created_at=task.created_at,
        started_at=task.started_at,
        finished_at=task.finished_at,
        reported_at=task.reported_at,
        updated_at=task.updated_at,
        child_run_id=None if task.child is None else task.child.run_id,
    )
