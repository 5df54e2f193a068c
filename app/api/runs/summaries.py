"""Route that lists runs with what a table of runs shows."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from msgspec.structs import asdict

from app.api.lists import Listed
from app.api.runs.listing import Metadata
from app.api.runs.summary_rows import RunSummaryOut, run_summary_out
from app.api.schemas.common import Page, Str, Uuid
from app.api.schemas.thread_names import ThreadQuery
from app.domain.errors import Invalid
from app.domain.ids import AgentId, RunId, canonical_uuid
from app.domain.runs.runs import RunFilter, RunStatus, WaitingReason
from app.domain.runs.terminations import Outcome
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep
from app.http.headers import tagged
from app.http.query_params import in_event_loop, listed_names
from app.queries.run_summaries import list_summaries

MAX_IDS = 200

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/run-summaries", tags=["runs"])


@router.get(
    "",
    response_model=Page[RunSummaryOut],
    responses={304: {"description": "Not changed since the ETag in `If-None-Match`"}},
)
async def list_run_summaries(
    request: Request,
    ctx: ContextDep,
    principal: MayRead,
    paging: Listed,
    metadata: Metadata,
    thread: Annotated[ThreadQuery, in_event_loop(ThreadQuery)],
    ids: Annotated[
        Str | None,
        Query(
            max_length=40 * MAX_IDS,
            description=f"Only these runs: at most {MAX_IDS} ids, separated by commas.",
        ),
    ] = None,
    status: Annotated[
        Str | None,
        Query(
            max_length=100,
            description="Only runs with one of these statuses, separated by commas: `created`, `running`, "
            "`waiting`, `done`.",
        ),
    ] = None,
    agent_id: Annotated[Str | None, Query(max_length=200)] = None,
    waiting_reason: WaitingReason | None = None,
    outcome: Outcome | None = None,
    termination_code: Annotated[Str | None, Query(max_length=200)] = None,
    root_run_id: Uuid | None = None,
) -> Response:
    """List runs with what a table of runs shows, by default the newest first: a quarter of the bytes of
    GET /v1/runs, with the beginning of what each run was asked. `metadata.KEY=TEXT` filters by metadata."""
    wanted = RunFilter(
        ids=_ids_in(ids),
        statuses=_statuses_in(status),
        thread_id=thread.thread_in(principal.tenant),
        agent_id=None if agent_id is None else AgentId(agent_id),
        waiting_reason=waiting_reason,
        outcome=outcome,
        termination_code=termination_code,
        root_run_id=None if root_run_id is None else RunId(root_run_id),
        metadata=metadata,
    )
    query = paging.of(list="run-summaries", **asdict(wanted))
    found = await list_summaries(ctx, principal, wanted, query.by_creation())
    page = Page[RunSummaryOut].of(
        found,
        show=run_summary_out,
        cursor=lambda each: cursors.encode(query.name, each.run.created_at, each.run.id),
    )
    return tagged(request, page.model_dump_json(by_alias=True).encode())


def _statuses_in(text: str | None) -> tuple[RunStatus, ...]:
    if text is None:
        return ()
    names = listed_names("status", text, [status.value for status in RunStatus])
    return tuple(sorted(RunStatus(name) for name in names))


def _ids_in(text: str | None) -> tuple[RunId, ...] | None:
    """The ids in the parameter; None without one."""
    if text is None:
        return None
    given = [name.strip() for name in text.split(",") if name.strip()]
    ids = [id for name in given if (id := canonical_uuid(name)) is not None]
    if len(ids) < len(given) or len(ids) > MAX_IDS:
        raise Invalid(
            "invalid_request",
            f"query.ids: takes at most {MAX_IDS} ids of runs, separated by commas.",
        )
    return tuple(RunId(id) for id in ids)
