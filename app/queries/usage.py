"""Sums of the usage ledger."""

from collections.abc import Sequence

from app.context import ServiceContext
from app.domain.ids import ThreadId
from app.domain.principals import Principal, Scope
from app.domain.slices import Slice
from app.domain.structs import replace
from app.domain.usage.totals import UsageFilter, UsageGroup, UsageTotal
from app.queries.records import RunView, found_thread
from app.storage.usage import totals


async def thread_usage(
    ctx: ServiceContext, principal: Principal, thread_id: ThreadId
) -> tuple[UsageTotal, ...]:
    """The usage of all runs of a thread, by model."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading_by_key() as connection:
        await found_thread(connection, principal.tenant, thread_id)
        return await totals.by_model(connection, principal.tenant, thread_id)


async def with_usage(
    ctx: ServiceContext, principal: Principal, views: Sequence[RunView]
) -> tuple[RunView, ...]:
    """The same runs, each with its usage by model."""
    principal.require(Scope.RUNS_READ)
    billed = [view.run for view in views if view.run.attempt]
    if not billed:
        return tuple(replace(view, usage=()) for view in views)
    async with ctx.database.reading() as connection:
        usage_of = await totals.by_model_of_runs(connection, principal.tenant, billed)
    return tuple(replace(view, usage=usage_of.get(view.run.id, ())) for view in views)


async def usage_by_group(
    ctx: ServiceContext,
    principal: Principal,
    wanted: UsageFilter,
    groups: Sequence[UsageGroup],
    *,
    after: Sequence[str] | None,
    limit: int,
) -> Slice[UsageTotal]:
    """A page of the tenant's usage in a period, by group."""
    principal.require(Scope.USAGE_READ)
    async with ctx.database.reading() as connection:
        return await totals.page(
            connection, principal.tenant, wanted, groups, after=after, limit=limit
        )
