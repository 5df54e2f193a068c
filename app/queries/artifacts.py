"""Lineage: what a run has made beside its answer."""

from app.context import ServiceContext
from app.domain.agents.backend_results import OUTPUT_KEY, Artifact, output_from_json
from app.domain.ids import RunId
from app.domain.principals import Principal, Scope
from app.queries.records import run_not_found
from app.storage.runs import runs


async def artifacts(
    ctx: ServiceContext, principal: Principal, run_id: RunId
) -> tuple[Artifact, ...]:
    """What the run has made beside its answer, as of its last checkpoint."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        record = await runs.get(connection, principal.tenant, run_id)
    if record is None:
        raise run_not_found(run_id)
    kept = (record.run_state or {}).get("extensions", {}).get(OUTPUT_KEY)
    return () if kept is None else output_from_json(kept).artifacts
