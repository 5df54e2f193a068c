"""The extension for tasks of the protocol of 2026: a server answers a call with a handle, and is asked for the result.

The library has no types for it. It lets clients declare an extension with a result of their own, and send other
requests.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import mcp_types as wire
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import ConfigDict, Discriminator, Tag, TypeAdapter
from pydantic.alias_generators import to_camel

from app.tools.mcp.client import InputRequired, RequestRefused, ServerAnswer, TaskHandle
from app.tools.mcp.protocol.conversion import answer_of, input_required

EXTENSION = "io.modelcontextprotocol/tasks"
DEFAULT_POLL_SECONDS = 5.0
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.1, 3600.0
MAX_ID_CHARACTERS = 500


class _TaskFields(wire.Result):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str | None = None
    poll_interval_ms: float | None = None


class TaskCreated(_TaskFields):
    """The answer to a call that the server continues as a task."""

    result_type: Literal["task"]


class TaskState(_TaskFields):
    """The answer to a question for a task."""

    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    # The library has its own rules for results with `inputRequests`, so it is parsed below.
    input_requests: dict[str, Any] | None = None


class _TaskParams(wire.RequestParams):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    task_id: str
    input_responses: dict[str, Any] | None = None


class GetTask(wire.Request[_TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams
    name_param = "taskId"


class UpdateTask(wire.Request[_TaskParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: _TaskParams
    name_param = "taskId"


class CancelTask(wire.Request[_TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _TaskParams
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Declares that answers to calls may be tasks. They are never resolved here: a run may wait for days."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskCreated, resolve=_not_resolved)]


async def _not_resolved(created: TaskCreated, context: ClaimContext) -> wire.CallToolResult:
    raise NotImplementedError("calls are sent without the library's own loop")


def _kind(value: Any) -> str:
    tag = value.get("resultType") if isinstance(value, dict) else getattr(value, "result_type", "")
    return "task" if tag == "task" else "core"


CALL_RESULT: TypeAdapter[wire.CallToolResult | wire.InputRequiredResult | TaskCreated] = (
    TypeAdapter(
        Annotated[
            Annotated[wire.CallToolResult | wire.InputRequiredResult, Tag("core")]
            | Annotated[TaskCreated, Tag("task")],
            Discriminator(_kind),
        ]
    )
)


def params_of(task: str, replies: dict[str, Any] | None = None) -> _TaskParams:
    return _TaskParams(task_id=task, input_responses=replies)


def handle_of(task: TaskCreated | TaskState) -> TaskHandle:
    if not 0 < len(task.task_id) <= MAX_ID_CHARACTERS or not task.task_id.isprintable():
        raise RequestRefused(0, "the id of its task can't be used")
    wished = (task.poll_interval_ms or DEFAULT_POLL_SECONDS * 1000) / 1000
    return TaskHandle(
        id=task.task_id,
        poll_seconds=min(max(wished, MIN_POLL_SECONDS), MAX_POLL_SECONDS),
        message=task.status_message,
    )


def answer_of_task(task: TaskState) -> ServerAnswer | InputRequired | TaskHandle:
    """The answer of a task that has ended, its questions, or its handle. Raises RequestRefused."""
    match task.status:
        case "working":
            return handle_of(task)
        case "input_required":
            asked = wire.InputRequiredResult.model_validate(
                {"resultType": "input_required", "inputRequests": task.input_requests or {}},
                by_name=False,
            )
            return input_required(asked, task=handle_of(task))
        case "completed":
            return answer_of(wire.CallToolResult.model_validate(task.result or {}, by_name=False))
        case "failed":
            error = task.error or {}
            code = error.get("code")
            message = str(error.get("message") or task.status_message or "its task failed")
            raise RequestRefused(code if isinstance(code, int) else 0, message)
        case "cancelled":
            why = task.status_message or "it gave no reason"
            return ServerAnswer(text=f"the server cancelled its task: {why}", is_error=True)
