"""Background tasks over HTTP: those of a run, and their cancellation."""

from typing import Annotated

from fastapi import APIRouter, Path

from app.api.schemas.background_tasks import TaskOut, task_out
from app.api.schemas.common import ListCursor, ListLimit, Page, Str, Uuid
from app.commands.followups import background_tasks
from app.domain.ids import TASK_PREFIX, RunId, TaskId
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead, MayWrite
from app.http.deps import ContextDep
from app.http.error_codes import error_responses

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["tasks"])


@router.get(
    "/{run_id}/tasks",
    responses=error_responses("run_not_found"),
)
async def list_tasks(
    run_id: Uuid,
    ctx: ContextDep,
    principal: MayRead,
    cursor: ListCursor = None,
    limit: ListLimit = 50,
) -> Page[TaskOut]:
    """The run's background tasks, newest first."""
    query = {"list": "tasks", "run": run_id}
    place = cursors.decode(query, cursor)
    found = await background_tasks.list_tasks(
        ctx,
        principal,
        RunId(run_id),
        before=None if place is None else (place[0], TaskId(TASK_PREFIX + place[1])),
        limit=limit,
    )
    return Page[TaskOut].of(
        found,
        show=task_out,
        cursor=lambda task: cursors.encode(
            query, task.created_at, task.id.removeprefix(TASK_PREFIX)
        ),
    )


@router.post(
    "/{run_id}/tasks/{task_id}/cancel",
    responses=error_responses("run_not_found", "task_not_found"),
)
async def cancel_a_task(
    run_id: Uuid,
    task_id: Annotated[Str, Path(max_length=100)],
    ctx: ContextDep,
    principal: MayWrite,
) -> TaskOut:
    """Cancel a task that is still running, and tell its run. One that has ended stays as it ended."""
    cancelled = await background_tasks.cancel_task(ctx, principal, RunId(run_id), TaskId(task_id))
    return task_out(cancelled)
