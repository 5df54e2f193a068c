"""Tasks: tool calls that go on by themselves while their run does, or waits for them.

    running ──► completed | failed | cancelled

A task outlives the step, the worker and the activation that began it. It ends once; when it does, its
run finds an input that says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from app.domain.children.child_runs import ChildWork, result_of_report
from app.domain.ids import AgentId, AgentVersion, CallId, MessageId, RunId, TaskId, Tenant, ThreadId
from app.domain.json_values import Json, JsonObject, as_object, compact
from app.domain.threads.messages import Message, Role, Text, Visibility
from app.domain.tools.tool_calls import Effect, ResultStatus, ToolResult

OUTCOME_UNKNOWN = "task outcome unknown: its worker was lost"


def outcome_unknown(why: str | None) -> str:
    """With what the task's tool had to say to that."""
    return OUTCOME_UNKNOWN if why is None else f"{OUTCOME_UNKNOWN}; {why}"


class TaskStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self is not TaskStatus.RUNNING


TASK_TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.RUNNING: frozenset(TaskStatus),
    TaskStatus.COMPLETED: frozenset({TaskStatus.COMPLETED}),
    TaskStatus.FAILED: frozenset({TaskStatus.FAILED}),
    TaskStatus.CANCELLED: frozenset({TaskStatus.CANCELLED}),
}


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Enough to wake a task: which, and under which attempt it was last seen."""

    tenant: Tenant
    task_id: TaskId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A call that shall go on by itself. Its tool is the one that this version of the agent has."""

    id: TaskId
    agent_id: AgentId
    agent_version: AgentVersion
    call_id: CallId
    tool_name: str
    arguments: JsonObject
    effect: Effect
    idempotency_key: str
    child: ChildWork | None = None
    """Work for another agent: no tool carries it out, but a run of that agent's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(NewTask):
    """A task as it stands in the database."""

    run_id: RunId
    thread_id: ThreadId
    status: TaskStatus
    result: Json
    error: str | None
    unread_messages: int
    """Messages for it that its tool hasn't read."""
    attempt: int
    losses: int
    """Workers that were lost over it."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    reported_at: datetime | None
    """When its run was told of its end; never, when the run was done by then."""
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a task ended."""

    status: TaskStatus
    result: Json = None
    error: str | None = None


CANCELLED = TaskOutcome(TaskStatus.CANCELLED)


def task_failed(error: str) -> TaskOutcome:
    return TaskOutcome(TaskStatus.FAILED, error=error)


def outcome_of(result: ToolResult) -> TaskOutcome:
    """A tool's result as its task's. A task has nobody to ask: a question is an error."""
    match result.status:
        case ResultStatus.SUCCESS:
            return TaskOutcome(TaskStatus.COMPLETED, result.data)
        case ResultStatus.ERROR:
            return task_failed(result.text)
        case ResultStatus.PENDING:
            return task_failed(
                "a background task can't ask a person; call the tool in the foreground"
            )


def outcome_of_report(tool_name: str, report: Json) -> TaskOutcome:
    """What a child has come to, as the end of the task that it was."""
    if (as_object(report) or {}).get("status") == CANCELLED.status.value:
        return CANCELLED
    return outcome_of(result_of_report(tool_name, report))


def started_result(task_id: TaskId, tool_name: str) -> ToolResult:
    """What the model reads at once of a call that has become a task."""
    return ToolResult.success(tool_name, {"task_id": task_id, "status": TaskStatus.RUNNING.value})


def event_message(task: Task, message_id: MessageId) -> Message:
    """What the run is told of a task's end: the model reads it, listings leave it out."""
    body: dict[str, Any] = {"task_id": task.id, "tool_name": task.tool_name}
    if task.status is TaskStatus.COMPLETED:
        body["result"] = task.result
    if task.error is not None:
        body["error"] = task.error
    if task.unread_messages:
        body["unread_messages"] = task.unread_messages
    # A result must not be able to close the tag that it stands in.
    content = compact(body).replace("</", "<\\/")
    text = (
        f'<background-task-event kind="{task.status.value}" task_id="{task.id}">'
        f"{content}</background-task-event>"
    )
    return Message(
        id=message_id, role=Role.USER, content=(Text(text),), visibility=Visibility.INTERNAL
    )
