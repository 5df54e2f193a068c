"""What the server has to do now: its processes, and the unfinished runs of a tenant."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from functools import partial

from msgspec import Struct

from app.context import ServiceContext
from app.domain.ids import AgentId, Tenant
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunStatus
from app.domain.slices import PageRequest, Slice
from app.queries.kept_answers import KeptAnswers
from app.storage import workers
from app.storage.runs import statistics
from app.storage.runs.statistics import UnfinishedCount
from app.storage.workers import ListedWorker

MAX_COUNT = statistics.MAX_COUNTED


class QueueCounts(Struct, frozen=True, kw_only=True):
    """Unfinished runs, by what has to happen next."""

    ready: int
    queued_behind: int
    executing: int
    waiting: Mapping[str, int]
    open_tickets: int
    oldest_ready_at: datetime | None


class Workload:
    """Counts of the unfinished runs of each tenant, kept for some seconds."""

    def __init__(self) -> None:
        self._kept: KeptAnswers[QueueCounts] = KeptAnswers()

    async def counts(
        self, ctx: ServiceContext, principal: Principal, agent: AgentId | None
    ) -> QueueCounts:
        principal.require(Scope.RUNS_READ)
        tenant = principal.tenant
        return await self._kept.get((tenant, agent), partial(_read_counts, ctx, tenant, agent))


async def list_workers(
    ctx: ServiceContext, principal: Principal, requested: PageRequest
) -> Slice[ListedWorker]:
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        return await workers.page(
            connection,
            principal.tenant,
            requested,
            heartbeat_timeout=ctx.heartbeat_timeout,
        )


async def _read_counts(ctx: ServiceContext, tenant: Tenant, agent: AgentId | None) -> QueueCounts:
    async with ctx.database.reading() as connection:
        counts = await statistics.unfinished(connection, tenant, agent)
        open_tickets = await statistics.open_tickets(connection, tenant, agent)
    ready = [one for one in counts if one.status is RunStatus.CREATED and one.is_admitted]
    behind = [one for one in counts if one.status is RunStatus.CREATED and not one.is_admitted]
    waiting: Counter[str] = Counter()
    for one in counts:
        if one.waiting_reason is not None:
            waiting[one.waiting_reason] += one.runs
    return QueueCounts(
        ready=_total(ready),
        queued_behind=_total(behind),
        executing=_total([one for one in counts if one.status is RunStatus.RUNNING]),
        waiting=dict(sorted(waiting.items())),
        open_tickets=open_tickets,
        oldest_ready_at=min((one.oldest_at for one in ready), default=None),
    )


def _total(counts: list[UnfinishedCount]) -> int:
    return sum(one.runs for one in counts)
