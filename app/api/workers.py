"""Routes about the server's work: its processes, its queue, and statistics of its runs."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from app.api.lists import PagedAscending
from app.api.schemas.common import Instant, Page, ResponseModel, Str, Time
from app.domain.ids import AgentId
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep, RunHistoryDep, WorkerDep, WorkloadDep
from app.queries import workload
from app.queries.run_statistics import MAX_RUNS, Bucket, StatisticsPeriod

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1", tags=["system"])

AgentName = Annotated[Str | None, Query(max_length=200, description="Only runs of this agent.")]


class WorkerOut(ResponseModel):
    """A process of the server."""

    id: str
    role: Literal["all", "api", "worker"] = Field(
        description="`api` serves requests, `worker` executes runs, `all` does both."
    )
    host: str
    pid: int
    started_at: Time = Field(description="When the process started.")
    last_heartbeat_at: Time = Field(validation_alias="heartbeat_at")
    is_alive: bool = Field(
        description="Whether its heartbeat is recent. Runs of a process that isn't alive are taken over."
    )
    executing: int = Field(description="Number of your tenant's runs that it executes.")


class SlotsOut(ResponseModel):
    """Runs that the process that answers can execute at once."""

    total: int = Field(description="All slots.")
    free: int = Field(description="Slots that no run uses.")


class QueueOut(ResponseModel):
    """Unfinished runs of the tenant."""

    ready: int = Field(description="Runs that a free worker executes next.")
    queued_behind: int = Field(description="Runs that wait for an earlier run of their thread.")
    executing: int = Field(description="Runs that a worker executes.")
    waiting: dict[str, int] = Field(description="Suspended runs, by `waiting.reason`.")
    open_tickets: int = Field(description="Open tickets that a person decides.")
    oldest_ready_at: Time | None = Field(
        description="When the longest waiting of the ready runs was created; null if none is ready."
    )
    counted_up_to: int = Field(description="No count is larger: more rows aren't counted.")
    slots: SlotsOut | None = Field(
        description="Slots of the process that answers; null if it executes no runs."
    )


class BucketOut(ResponseModel):
    """Runs that were created in one part of the period."""

    begins_at: Time = Field(description="Beginning of the part.")
    runs: dict[str, int] = Field(
        description="Number of runs by outcome; `unfinished` are those that aren't done."
    )
    input_tokens: int
    output_tokens: int


class RunStatisticsOut(ResponseModel):
    """How the runs of a period ended."""

    begin: Time = Field(serialization_alias="from", description="Beginning of the first part.")
    end: Time = Field(serialization_alias="to", description="End of the period, exclusive.")
    bucket: Bucket = Field(description="Width of the parts.")
    is_complete: bool = Field(
        description=f"False if the period has more than {MAX_RUNS} runs. Then only the newest are counted."
    )
    buckets: list[BucketOut] = Field(description="All parts, the oldest first.")


@router.get("/workers")
async def list_workers(
    ctx: ContextDep, principal: MayRead, paging: PagedAscending
) -> Page[WorkerOut]:
    """List the processes of the server, by default the oldest first."""
    query = paging.of(list="workers")
    found = await workload.list_workers(ctx, principal, query.by_creation())
    return Page[WorkerOut].of(
        found,
        show=WorkerOut.model_validate,
        cursor=lambda worker: cursors.encode(query.name, worker.started_at, worker.id),
    )


@router.get("/queue")
async def get_queue(
    ctx: ContextDep,
    principal: MayRead,
    counts_of: WorkloadDep,
    worker: WorkerDep,
    agent_id: AgentName = None,
) -> QueueOut:
    """Count the unfinished runs. The counts may be some seconds old."""
    counts = await counts_of.counts(ctx, principal, None if agent_id is None else AgentId(agent_id))
    return QueueOut(
        ready=counts.ready,
        queued_behind=counts.queued_behind,
        executing=counts.executing,
        waiting=dict(counts.waiting),
        open_tickets=counts.open_tickets,
        oldest_ready_at=counts.oldest_ready_at,
        counted_up_to=workload.MAX_COUNT,
        slots=None
        if worker is None
        else SlotsOut(total=worker.slots.count, free=worker.slots.free_count),
    )


@router.get("/stats/runs")
async def get_run_statistics(
    ctx: ContextDep,
    principal: MayRead,
    history: RunHistoryDep,
    bucket: Annotated[Bucket, Query(description="Width of the parts.")] = Bucket.HOUR,
    begin: Annotated[
        Instant | None,
        Query(alias="from", description="Beginning of the period. By default 24 parts are shown."),
    ] = None,
    end: Annotated[
        Instant | None,
        Query(alias="to", description="End of the period, exclusive. By default now."),
    ] = None,
    agent_id: AgentName = None,
) -> RunStatisticsOut:
    """Count the runs that were created in a period, by outcome. The counts may be some seconds old."""
    found = await history.of_period(
        ctx,
        principal,
        StatisticsPeriod(bucket, begin, end),
        None if agent_id is None else AgentId(agent_id),
    )
    return RunStatisticsOut.model_validate(found)
