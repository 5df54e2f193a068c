"""Lineage over HTTP: the children of a run, and what it has made."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from app.api.run_lists import RunQuery, page_of_runs
from app.api.schemas.common import Answer, Page, Uuid
from app.api.schemas.runs import RunOut
from app.control import reading
from app.control.lineage import artifacts
from app.domain.ids import RunId
from app.transport.access import AuthorizedRoute, MayRead
from app.transport.deps import DeskDep
from app.transport.refusals import refusals

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


class ArtifactOut(Answer):
    id: str | None
    name: str | None
    media_type: str | None
    content: Any


@router.get(
    "/{run_id}/children",
    responses=refusals("run_not_found"),
)
async def list_children(
    run_id: Uuid, desk: DeskDep, principal: MayRead, query: Annotated[RunQuery, Depends()]
) -> Page[RunOut]:
    """The runs that this one has started to have work done, newest first.

    `metadata.KEY=TEXT` picks those with that text under that key.
    """
    parent = RunId(run_id)
    await reading.run(desk, principal, parent)
    return await page_of_runs(desk, principal, query, thread_id=None, parent_run_id=parent)


@router.get("/{run_id}/artifacts", responses=refusals("run_not_found"))
async def list_artifacts(run_id: Uuid, desk: DeskDep, principal: MayRead) -> Page[ArtifactOut]:
    """What the run has made beside its answer; there are some where its agent lives elsewhere."""
    made = await artifacts(desk, principal, RunId(run_id))
    items = [
        ArtifactOut(id=each.id, name=each.name, media_type=each.media_type, content=each.content)
        for each in made
    ]
    return Page[ArtifactOut](items=items, next_cursor=None, has_more=False)
