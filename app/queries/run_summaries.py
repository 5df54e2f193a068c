"""Lists runs with what a table of runs shows."""

from msgspec import Struct

from app.context import ServiceContext
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunFilter, RunRecord, Waiting
from app.domain.slices import PageRequest, Slice
from app.storage.runs import listing as run_list
from app.storage.runs import row_details
from app.storage.runs.row_details import RowDetails
from app.storage.tickets import child_tickets, listing


class RunSummary(Struct, frozen=True):
    """A run, the beginning of what it was asked, and how many tickets and child runs it has."""

    run: RunRecord
    details: RowDetails
    open_tickets: int = 0
    is_asked_below: bool = False
    """Whether tickets of runs below it are open."""

    @property
    def needs_decision(self) -> bool:
        """Whether the run, if it waits, waits until a person acts."""
        return bool(self.open_tickets) or self.is_asked_below or self.run.pause is not None


async def list_summaries(
    ctx: ServiceContext, principal: Principal, wanted: RunFilter, requested: PageRequest
) -> Slice[RunSummary]:
    principal.require(Scope.RUNS_READ)
    tenant = principal.tenant
    async with ctx.database.reading() as connection:
        found = await run_list.page(connection, tenant, wanted, requested)
        # A run that resumes after one of its decisions may have other tickets that are open.
        unfinished = [run.id for run in found if not run.is_done]
        counts = await listing.count_open_of(connection, tenant, unfinished) if unfinished else {}
        waiting = [run.id for run in found if isinstance(run.state, Waiting)]
        below = await child_tickets.with_open_below(connection, tenant, waiting)
        details = await row_details.details_of(connection, tenant, found) if found else {}
    items = tuple(
        RunSummary(run, details[run.id], counts.get(run.id, 0), run.id in below) for run in found
    )
    return Slice(items, found.has_more)
