"""Routes of background tasks."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from app.api.lists import Listed
from app.api.schemas.background_tasks import TaskOut
from app.api.schemas.common import Page, Str, Uuid
from app.commands.followups import background_tasks
from app.domain.children.background_tasks import TaskFilter
from app.domain.ids import TASK_PREFIX, RunId, TaskId
from app.domain.structs import replace
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
    paging: Listed,
    status: Annotated[
        Literal["running", "done"] | None, Query(description="Only tasks with this status.")
    ] = None,
    outcome: Annotated[
        Literal["succeeded", "failed", "cancelled"] | None,
        Query(description="Only tasks that ended so."),
    ] = None,
) -> Page[TaskOut]:
    """List the background tasks of a run, by default the newest first."""
    query = paging.of(list="tasks", run=run_id, status=status, outcome=outcome)
    requested = query.by_creation()
    if requested.after is not None:
        created_at, uuid = requested.after
        requested = replace(requested, after=(created_at, TASK_PREFIX + uuid))
    wanted = TaskFilter(None if status is None else status == "done", outcome)
    found = await background_tasks.list_tasks(ctx, principal, RunId(run_id), wanted, requested)
    return Page[TaskOut].of(
        found,
        show=TaskOut.model_validate,
        cursor=lambda task: cursors.encode(
            query.name, task.created_at, task.id.removeprefix(TASK_PREFIX)
        ),
    )


@router.post(
    "/{run_id}/tasks/{task_id}/cancel",
    responses=error_responses("run_not_found", "task_not_found"),
)
async def cancel_task(
    run_id: Uuid,
    task_id: Annotated[Str, Path(max_length=100)],
    ctx: ContextDep,
    principal: MayWrite,
) -> TaskOut:
    """Cancel a running task and report that to its run. A finished task doesn't change."""
    cancelled = await background_tasks.cancel_task(ctx, principal, RunId(run_id), TaskId(task_id))
    return TaskOut.model_validate(cancelled)
