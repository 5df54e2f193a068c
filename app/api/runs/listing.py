"""Lists of runs of a tenant, a thread or a parent run."""

from typing import Annotated

from fastapi import Depends, Query
from msgspec import Struct
from msgspec.structs import asdict

from app.api.included import Included
from app.api.lists import Listed
from app.api.schemas.common import Page, Str, Uuid
from app.api.schemas.runs.run import RunOut, run_out
from app.context import ServiceContext
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.principals import Principal
from app.domain.runs.runs import RunFilter, RunStatus, WaitingReason
from app.domain.runs.terminations import Outcome
from app.domain.slices import Slice
from app.http import cursors
from app.http.query_params import PrefixedQuery
from app.queries import records
from app.queries.usage import with_usage

Metadata = Annotated[dict[str, str], Depends(PrefixedQuery("metadata."))]


class RunQuery(Struct, frozen=True):
    """Filters and paging of a list of runs. `metadata.KEY=TEXT` filters by metadata."""

    metadata: Metadata
    paging: Listed
    agent_id: Annotated[Str | None, Query(max_length=200)] = None
    status: RunStatus | None = None
    waiting_reason: WaitingReason | None = None
    paused: bool | None = None
    root_run_id: Uuid | None = None
    outcome: Outcome | None = None
    termination_code: Annotated[Str | None, Query(max_length=200)] = None

    def run_filter(self, thread_id: ThreadId | None, parent_run_id: RunId | None) -> RunFilter:
        return RunFilter(
            thread_id=thread_id,
            parent_run_id=parent_run_id,
            root_run_id=None if self.root_run_id is None else RunId(self.root_run_id),
            agent_id=None if self.agent_id is None else AgentId(self.agent_id),
            status=self.status,
            waiting_reason=self.waiting_reason,
            paused=self.paused,
            outcome=self.outcome,
            termination_code=self.termination_code,
            metadata=self.metadata,
        )


async def page_of_runs(
    ctx: ServiceContext,
    principal: Principal,
    query: RunQuery,
    included: Included,
    thread_id: ThreadId | None,
    parent_run_id: RunId | None = None,
) -> Page[RunOut]:
    """Runs by creation. A cursor is valid only with the same filters."""
    wanted = query.run_filter(thread_id, parent_run_id)
    listed = query.paging.of(list="runs", **asdict(wanted))
    found = await records.list_runs(ctx, principal, wanted, listed.by_creation())
    if included.usage:
        found = Slice(await with_usage(ctx, principal, found), found.has_more)
    return Page[RunOut].of(
        found,
        show=lambda view: run_out(view, included),
        cursor=lambda view: cursors.encode(listed.name, view.run.created_at, view.run.id),
    )
