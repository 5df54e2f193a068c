"""Routes of a run's children and artifacts."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from app.api.included import ReadIncludeDep
from app.api.lists import PagedAscending
from app.api.runs.listing import RunQuery, page_of_runs
from app.api.schemas.common import Page, ResponseModel, Uuid
from app.api.schemas.runs.run import RunOut
from app.domain.agents.backend_results import Artifact
from app.domain.ids import RunId
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.http.query_params import in_event_loop
from app.queries import records
from app.queries.files.artifacts import list_artifacts

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


class ArtifactOut(ResponseModel):
    """A result of a run beside its answer: a file that a tool saved, or what an agent on another server made."""

    id: str | None = Field(description="Id of the file, or the other server's id of the artifact.")
    name: str | None
    media_type: str | None
    content: Any = Field(description="What the other server made. Null for a file of a tool.")
    content_url: str | None = Field(
        description="Address of the bytes. Null if the file was deleted, or the artifact couldn't become one."
    )
    size: int | None = Field(description="Number of bytes.")
    sha256: str | None = Field(description="SHA-256 of the bytes, in hexadecimal.")
    tool_call_id: str | None = Field(description="The call that saved the file.")

    @classmethod
    def of(cls, artifact: Artifact) -> "ArtifactOut":
        saved = artifact.saved
        return cls(
            id=artifact.id,
            name=artifact.name,
            media_type=artifact.media_type,
            content=artifact.content,
            content_url=None
            if saved is None
            else f"/v1/files/{artifact.file_id or artifact.id}/content",
            size=None if saved is None else saved.size,
            sha256=None if saved is None else saved.sha256,
            tool_call_id=None if saved is None else saved.call_id,
        )


@router.get(
    "/{run_id}/children",
    responses=error_responses("run_not_found"),
)
async def list_child_runs(
    run_id: Uuid,
    ctx: ContextDep,
    principal: MayRead,
    query: Annotated[RunQuery, in_event_loop(RunQuery)],
    included: ReadIncludeDep,
) -> Page[RunOut]:
    """List the child runs of a run, by default the newest first. `metadata.KEY=TEXT` filters by metadata."""
    parent = RunId(run_id)
    await records.read_run(ctx, principal, parent)
    return await page_of_runs(ctx, principal, query, included, thread_id=None, parent_run_id=parent)


@router.get("/{run_id}/artifacts", responses=error_responses("run_not_found"))
async def list_run_artifacts(
    run_id: Uuid,
    ctx: ContextDep,
    principal: MayRead,
    paging: PagedAscending,
) -> Page[ArtifactOut]:
    """List the artifacts of a run: first the files of its tools, then what agents on other servers made."""
    query = paging.of(list="artifacts", run=run_id)
    found = await list_artifacts(ctx, principal, RunId(run_id), query.by_number())
    return Page[ArtifactOut].of(
        found,
        show=lambda numbered: ArtifactOut.of(numbered[1]),
        cursor=lambda numbered: cursors.encode_seq(query.name, numbered[0]),
    )
