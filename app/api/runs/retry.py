"""Route that retries a failed run."""

from functools import partial

from fastapi import APIRouter, Depends, Request, Response

from app.api.included import IncludeDep
from app.api.runs.start import accepted
from app.api.schemas.common import Uuid
from app.api.schemas.runs.actions import RetryIn
from app.api.schemas.runs.run import RunOut, run_out
from app.commands.idempotency import once_for
from app.commands.runs.retry import RetryRequest, retry
from app.domain.ids import RunId
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import ContextDep, WorkerDep, require_not_draining
from app.http.error_codes import error_responses
from app.http.headers import traceparent, transport_request_id
from app.http.idempotency_key import KeyDep
from app.workers.direct_start import execute_here

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


@router.post(
    "/{run_id}/retry",
    status_code=202,
    responses=error_responses(
        "run_not_found",
        "run_not_finished",
        "not_retryable",
        "queue_full",
        "agent_not_found",
        "backend_unsupported",
        "price_unknown",
    ),
    dependencies=[Depends(require_not_draining)],
)
async def retry_run(
    run_id: Uuid,
    request: Request,
    response: Response,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayWrite,
    key: KeyDep,
    included: IncludeDep,
    body: RetryIn | None = None,
) -> RunOut:
    """Start a new run that continues from the last checkpoint of a failed run, which doesn't change."""
    body = body or RetryIn()
    wanted = RetryRequest(
        body.agent_version,
        body.wanted_limits(),
        traceparent(request),
        transport_request_id(request),
    )
    once = once_for(key, partial(accepted, included))
    command = partial(retry, ctx, principal, RunId(run_id), wanted, once=once)
    record = (await execute_here(worker, command)).record
    response.headers["Location"] = f"/v1/runs/{record.id}"
    return run_out(record, included)
