"""Route that explains why a run is where it is."""

from fastapi import APIRouter

from app.api.schemas.common import Uuid
from app.api.schemas.explain import ExplanationOut
from app.domain.ids import RunId
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.queries.explain import explain

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}/explain", responses=error_responses("run_not_found"))
async def explain_run(run_id: Uuid, ctx: ContextDep, principal: MayRead) -> ExplanationOut:
    """Explain why the run is where it is, and what to do to continue it."""
    return ExplanationOut.model_validate(await explain(ctx, principal, RunId(run_id)))
