"""Lineage: what a run has made beside its answer."""

from app.control.desk import Desk
from app.control.reading import run_not_found
from app.domain.backends import OUTPUT_KEY, Artifact, output_from_json
from app.domain.ids import RunId
from app.domain.principals import Principal, Scope
from app.storage import runs


async def artifacts(desk: Desk, principal: Principal, run_id: RunId) -> tuple[Artifact, ...]:
    """What the run has made beside its answer, as of its last checkpoint."""
    principal.require(Scope.RUNS_READ)
    async with desk.database.reading() as connection:
        record = await runs.get(connection, principal.tenant, run_id)
    if record is None:
        raise run_not_found(run_id)
    kept = (record.run_state or {}).get("extensions", {}).get(OUTPUT_KEY)
    return () if kept is None else output_from_json(kept).artifacts
