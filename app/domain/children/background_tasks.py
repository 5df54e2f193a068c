"""Background tasks: tool calls that execute beside their run, which may wait for them.

    running ──► done: succeeded | failed | cancelled

A task outlives the step, the worker and the activation that started it. It ends once, and its end is an
input of its run.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from app.domain.children.child_runs import ChildWork, result_of_report
from app.domain.ids import AgentId, AgentVersion, CallId, MessageId, RunId, TaskId, Tenant, ThreadId
from app.domain.json_values import Json, JsonObject, as_object, compact
from app.domain.threads.messages import Message, Role, Text, Visibility, block_to_json
from app.domain.tools.tool_calls import Effect, ResultStatus, ToolResult

OUTCOME_UNKNOWN = "task outcome unknown: its worker was lost"


def outcome_unknown(why: str | None) -> str:
    """The error of a task with an unknown outcome, with its tool's explanation."""
    return OUTCOME_UNKNOWN if why is None else f"{OUTCOME_UNKNOWN}; {why}"


class TaskStatus(StrEnum):
    """The status and outcome of a task in one word, as the database stores them."""

    RUNNING = "running"
    SUCCEEDED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self is not TaskStatus.RUNNING

    @property
    def outcome(self) -> str | None:
        """How the task ended; None while it runs."""
        return self.name.lower() if self.is_final else None

    def to_json(self) -> dict[str, Json]:
        """As the API and tools show it: `running`, or `done` with its outcome."""
        if self.is_final:
            return {"status": "done", "outcome": self.outcome}
        return {"status": "running"}


class TaskFilter(Struct, frozen=True):
    """Which tasks of a run are listed. None means that the field is not compared."""

    is_final: bool | None = None
    outcome: str | None = None

    @property
    def statuses(self) -> list[TaskStatus]:
        """The stored words that match."""
        return [
            status
            for status in TaskStatus
            if self.is_final in (None, status.is_final) and self.outcome in (None, status.outcome)
        ]


class TaskKey(Struct, frozen=True):
    """A task and its attempt, as a delivery names them."""

    tenant: Tenant
    task_id: TaskId
    attempt: int


class NewTask(Struct, frozen=True, kw_only=True):
    """A task to start. Its tool is that of exactly this agent version."""

    id: TaskId
    agent_id: AgentId
    agent_version: AgentVersion
    call_id: CallId
    tool_name: str
    arguments: JsonObject
    effect: Effect
    idempotency_key: str
    child: ChildWork | None = None
    """Set if a child run executes the task instead of a tool."""


class Task(NewTask, frozen=True, kw_only=True):
    """A task as stored."""

    run_id: RunId
    thread_id: ThreadId
    status: TaskStatus
    result: Json
    error: str | None
    unread_messages: int
    """Messages to the task that its tool hasn't read."""
    attempt: int
    losses: int
    """The number of workers that were lost while executing it."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    reported_at: datetime | None
    """When its end became an input of its run; None if the run was done before."""
    updated_at: datetime


class TaskOutcome(Struct, frozen=True):
    """How a task ended."""

    status: TaskStatus
    result: Json = None
    error: str | None = None


CANCELLED = TaskOutcome(TaskStatus.CANCELLED)


def task_failed(error: str) -> TaskOutcome:
    return TaskOutcome(TaskStatus.FAILED, error=error)


def outcome_of(result: ToolResult) -> TaskOutcome:
    """The outcome of a task, from its tool's result. A task can't suspend, so a suspension is an error."""
    match result.status:
        case ResultStatus.SUCCESS:
            return TaskOutcome(TaskStatus.SUCCEEDED, _value_of(result))
        case ResultStatus.ERROR:
            return task_failed(result.text)
        case ResultStatus.PENDING:
            return task_failed(
                "a background task can't ask a person; call the tool in the foreground"
            )


def _value_of(result: ToolResult) -> Json:
    """What the task reports: the data, or the text if there are none. With files it is an object with both."""
    value = result.message if result.data is None else result.data
    if not result.media:
        return value
    return {"result": result.text, "media": [block_to_json(each) for each in result.media]}


def outcome_of_report(tool_name: str, report: Json) -> TaskOutcome:
    """The outcome of a task, from the report of its child run."""
    if (as_object(report) or {}).get("outcome") == CANCELLED.status.outcome:
        return CANCELLED
    return outcome_of(result_of_report(tool_name, report))


def started_result(task_id: TaskId, tool_name: str) -> ToolResult:
    """The immediate result of a call that became a task."""
    return ToolResult.success(tool_name, {"task_id": task_id, **TaskStatus.RUNNING.to_json()})


def event_message(task: Task, message_id: MessageId) -> Message:
    """The input that reports a task's end to its run: the model reads it, listings leave it out."""
    body: dict[str, Any] = {"task_id": task.id, "tool_name": task.tool_name}
    if task.status is TaskStatus.SUCCEEDED:
        body["result"] = task.result
    if task.error is not None:
        body["error"] = task.error
    if task.unread_messages:
        body["unread_messages"] = task.unread_messages
    # A result must not be able to close the tag around it.
    content = compact(body).replace("</", "<\\/")
    text = (
        f'<background-task-event outcome="{task.status.outcome}" task_id="{task.id}">'
        f"{content}</background-task-event>"
    )
    return Message(
        id=message_id, role=Role.USER, content=(Text(text),), visibility=Visibility.INTERNAL
    )
