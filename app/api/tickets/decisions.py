"""Route that decides tickets of several runs."""

from functools import partial

from fastapi import APIRouter, Request

from app.api.schemas.tickets import (
    DecisionsOfRunsIn,
    DecisionsOfRunsOut,
    RunDecisionsOut,
    decision_result_out,
)
from app.commands.tickets.decide import Decided
from app.commands.tickets.decide_many import RunDecisions, decide_many
from app.commands.tickets.decision_types import DecisionRequest
from app.context import ServiceContext
from app.domain.ids import RunId
from app.domain.principals import Principal
from app.http.access import AuthorizedRoute, MayDecide
from app.http.deps import ContextDep, WorkerDep
from app.http.errors import document_of
from app.workers.direct_start import decide_and_execute
from app.workers.worker import Worker

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/decisions", tags=["tickets"])


@router.post("")
async def decide_tickets_of_runs(
    request: Request,
    body: DecisionsOfRunsIn,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayDecide,
) -> DecisionsOfRunsOut:
    """Decide tickets of several runs. Those of one run take effect together, or none of them; a refusal stops no
    other run. Send a `decision_id` with each decision, so that the same request can be sent again."""
    answers = [decision.to_domain() for decision in body.decisions]
    decided = await decide_many(
        ctx, principal, answers, partial(_decide_run, ctx, worker, principal)
    )
    return DecisionsOfRunsOut(runs=[_out(request, batch) for batch in decided])


async def _decide_run(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    requests: list[DecisionRequest],
) -> Decided:
    return await decide_and_execute(ctx, worker, principal, run_id, requests)


def _out(request: Request, batch: RunDecisions) -> RunDecisionsOut:
    results = () if batch.decided is None else batch.decided.results
    return RunDecisionsOut(
        run_id=batch.run_id,
        ticket_ids=[one.ticket for one in batch.requests],
        results=[decision_result_out(result) for result in results],
        error=None if batch.error is None else document_of(request, batch.error),
    )
