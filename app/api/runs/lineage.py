"""Routes of a run's children and artifacts."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from app.api.runs.listing import RunQuery, page_of_runs
from app.api.schemas.common import Page, ResponseModel, Uuid
from app.api.schemas.runs import RunOut
from app.domain.ids import RunId
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.queries import records
from app.queries.artifacts import artifacts

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


class ArtifactOut(ResponseModel):
    """A result of a run beside its answer."""

    id: str | None
    name: str | None
    media_type: str | None
    content: Any


@router.get(
    "/{run_id}/children",
    responses=error_responses("run_not_found"),
)
async def list_child_runs(
    run_id: Uuid, ctx: ContextDep, principal: MayRead, query: Annotated[RunQuery, Depends()]
) -> Page[RunOut]:
    """List the child runs of a run, newest first. `metadata.KEY=TEXT` filters by metadata."""
    parent = RunId(run_id)
    await records.read_run(ctx, principal, parent)
    return await page_of_runs(ctx, principal, query, thread_id=None, parent_run_id=parent)


@router.get("/{run_id}/artifacts", responses=error_responses("run_not_found"))
async def list_run_artifacts(
    run_id: Uuid, ctx: ContextDep, principal: MayRead
) -> Page[ArtifactOut]:
    """List the artifacts of a run. Only agents on other servers make them."""
    made = await artifacts(ctx, principal, RunId(run_id))
    items = [
        ArtifactOut(id=each.id, name=each.name, media_type=each.media_type, content=each.content)
        for each in made
    ]
    return Page[ArtifactOut](items=items, next_cursor=None, has_more=False)
