"""Tools for agents with background calls: cancel a task, or send it a message."""

from collections.abc import Mapping
from types import MappingProxyType

from app.domain.children.background_tasks import TaskStatus
from app.domain.ids import TaskId
from app.domain.json_values import Json, JsonObject
from app.runtime.ports.call_waits import Tasks
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.tools.functions.decorator import tool


@tool(effect="idempotent")
async def cancel_task(task_id: str, ctx: ToolContext) -> JsonObject:
    """Cancel a background task that is still running. A finished task doesn't change.

    Args:
        task_id: The id of the task, from the result of the call that started it.
    """
    return _status_result(task_id, await _tasks_of(ctx).cancel(TaskId(task_id)))


@tool(effect="idempotent")
async def send_message(task_id: str, message: str, ctx: ToolContext) -> JsonObject:
    """Send a message to a background task that is still running.

    The task's tool may or may not read it. The task's end reports the number of unread messages.

    Args:
        task_id: The id of the task, from the result of the call that started it.
        message: The text for the task.
    """
    status = await _tasks_of(ctx).send(TaskId(task_id), message, ctx.idempotency_key)
    return {**_status_result(task_id, status), "kept": status is TaskStatus.RUNNING}


BACKGROUND_TOOLS: Mapping[str, Tool] = MappingProxyType(
    {each.descriptor.name: each for each in (cancel_task, send_message)}
)
"""The tools by name. Every agent with background tools also has these."""


def _tasks_of(ctx: ToolContext) -> Tasks:
    if ctx.tasks is None:
        raise ValueError("a background task has no tasks of its own")
    return ctx.tasks


def _status_result(task_id: str, status: TaskStatus | None) -> dict[str, Json]:
    if status is None:
        raise ValueError(f"this run has no task {task_id!r}")
    return {"task_id": task_id, **status.to_json()}
