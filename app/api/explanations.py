"""Explanations over HTTP: why a run is where it is."""

from fastapi import APIRouter

from app.api.schemas.common import Uuid
from app.api.schemas.explanations import ExplanationOut, explanation_out
from app.control.explain import explain
from app.domain.ids import RunId
from app.transport.access import AuthorizedRoute, MayRead
from app.transport.deps import DeskDep
from app.transport.refusals import refusals

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}/explain", responses=refusals("run_not_found"))
async def explain_a_run(run_id: Uuid, desk: DeskDep, principal: MayRead) -> ExplanationOut:
    """Why the run is where it is, and who has to do what to move it."""
    return explanation_out(await explain(desk, principal, RunId(run_id)))
