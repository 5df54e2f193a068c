"""The artifacts of a run."""

from app.context import ServiceContext
from app.domain.agents.backend_results import Artifact
from app.domain.ids import RunId
from app.domain.principals import Principal, Scope
from app.domain.slices import PageRequest, Slice
from app.queries.records import run_not_found
from app.storage.runs import artifacts, runs


async def list_artifacts(
    ctx: ServiceContext, principal: Principal, run_id: RunId, requested: PageRequest
) -> Slice[tuple[int, Artifact]]:
    """A page of the results of the run besides its answer: files of its tools, and what remote agents made.

    Each artifact has its number in the run, by which the list is ordered.
    """
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        found = await artifacts.page(connection, principal.tenant, run_id, requested)
        if not found and await runs.get(connection, principal.tenant, run_id) is None:
            raise run_not_found(run_id)
        return found
