"""Lineage over HTTP: the children of a run, and what it has made."""

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
    id: str | None
    name: str | None
    media_type: str | None
    content: Any


@router.get(
    "/{run_id}/children",
    responses=error_responses("run_not_found"),
)
async def list_children(
    run_id: Uuid, ctx: ContextDep, principal: MayRead, query: Annotated[RunQuery, Depends()]
) -> Page[RunOut]:
    """The runs that this one has started to have work done, newest first.

    `metadata.KEY=TEXT` picks those with that text under that key.
    """
    parent = RunId(run_id)
    await records.read_run(ctx, principal, parent)
    return await page_of_runs(ctx, principal, query, thread_id=None, parent_run_id=parent)


@router.get("/{run_id}/artifacts", responses=error_responses("run_not_found"))
async def list_artifacts(run_id: Uuid, ctx: ContextDep, principal: MayRead) -> Page[ArtifactOut]:
    """What the run has made beside its answer; there are some where its agent lives elsewhere."""
    made = await artifacts(ctx, principal, RunId(run_id))
    items = [
        ArtifactOut(id=each.id, name=each.name, media_type=each.media_type, content=each.content)
        for each in made
    ]
    return Page[ArtifactOut](items=items, next_cursor=None, has_more=False)
