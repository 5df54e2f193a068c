"""Lists of runs: of a tenant, or of one of its threads."""

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import Depends, Query

from app.api.schemas.common import Instant, ListCursor, ListLimit, Page, Str, Uuid
from app.api.schemas.runs import RunOut, run_out
from app.context import ServiceContext
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.principals import Principal
from app.domain.runs.runs import RunFilter, RunStatus
from app.domain.runs.terminations import Outcome
from app.http import cursors
from app.http.query_params import PrefixedQuery
from app.queries import records

Metadata = Annotated[dict[str, str], Depends(PrefixedQuery("metadata."))]


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs, and which part of the list. `metadata.KEY=TEXT` picks runs with that in theirs;
    `termination_code=worker_lost` those that had to be given up."""

    metadata: Metadata
    agent_id: Annotated[Str | None, Query(max_length=200)] = None
    status: RunStatus | None = None
    root_run_id: Uuid | None = None
    outcome: Outcome | None = None
    termination_code: Annotated[Str | None, Query(max_length=200)] = None
    created_after: Instant | None = None
    created_before: Instant | None = None
    cursor: ListCursor = None
    limit: ListLimit = 50

    def run_filter(self, thread_id: ThreadId | None, parent_run_id: RunId | None) -> RunFilter:
        return RunFilter(
            thread_id=thread_id,
            parent_run_id=parent_run_id,
            root_run_id=None if self.root_run_id is None else RunId(self.root_run_id),
            agent_id=None if self.agent_id is None else AgentId(self.agent_id),
            status=self.status,
            outcome=self.outcome,
            termination_code=self.termination_code,
            created_after=self.created_after,
            created_before=self.created_before,
            metadata=self.metadata,
        )


async def page_of_runs(
    ctx: ServiceContext,
    principal: Principal,
    query: RunQuery,
    thread_id: ThreadId | None,
    parent_run_id: RunId | None = None,
) -> Page[RunOut]:
    """Runs, newest first. A cursor is good for the filters it came with."""
    wanted = query.run_filter(thread_id, parent_run_id)
    name = {"list": "runs", **asdict(wanted)}
    place = cursors.decode(name, query.cursor)
    found = await records.list_runs(
        ctx,
        principal,
        wanted,
        before=None if place is None else (place[0], RunId(place[1])),
        limit=query.limit,
    )
    return Page[RunOut].of(
        found,
        show=run_out,
        cursor=lambda view: cursors.encode(name, view.run.created_at, view.run.id),
    )
