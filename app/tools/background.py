"""Tools for agents whose calls go on in the background: take a task back, or tell it something."""

from collections.abc import Mapping
from types import MappingProxyType

from app.domain.children.background_tasks import TaskStatus
from app.domain.ids import TaskId
from app.domain.json_values import JsonObject
from app.runtime.ports import Tasks, Tool, ToolContext
from app.tools.functions.decorator import tool


@tool(effect="idempotent")
async def cancel_task(task_id: str, ctx: ToolContext) -> JsonObject:
    """Cancel a background task that is still running. One that has ended stays as it ended.

    Args:
        task_id: The task, as the call that started it has named it.
    """
    return _standing(task_id, await _tasks_of(ctx).cancel(TaskId(task_id)))


@tool(effect="idempotent")
async def send_message(task_id: str, message: str, ctx: ToolContext) -> JsonObject:
    """Send a message to a background task that is still running.

    It is kept for the task, whose tool may or may not read it; what was never read is counted when the
    task ends.

    Args:
        task_id: The task, as the call that started it has named it.
        message: What to tell it.
    """
    status = await _tasks_of(ctx).send(TaskId(task_id), message, ctx.idempotency_key)
    return {**_standing(task_id, status), "kept": status is TaskStatus.RUNNING}


BACKGROUND_TOOLS: Mapping[str, Tool] = MappingProxyType(
    {each.descriptor.name: each for each in (cancel_task, send_message)}
)
"""By their names; an agent with background tools has them too."""


def _tasks_of(ctx: ToolContext) -> Tasks:
    if ctx.tasks is None:
        raise ValueError("a background task has no tasks of its own")
    return ctx.tasks


def _standing(task_id: str, status: TaskStatus | None) -> dict[str, object]:
    if status is None:
        raise ValueError(f"this run has no task {task_id!r}")
    return {"task_id": task_id, "status": status.value}
