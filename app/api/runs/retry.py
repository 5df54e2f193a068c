"""Retries over HTTP: a new run in a failed one's place."""

from fastapi import APIRouter, Depends, Request, Response

from app.api.runs.start import accepted
from app.api.schemas.common import Uuid
from app.api.schemas.runs import RetryIn, RunOut, run_out
from app.commands.idempotency import IdempotentCommand
from app.commands.runs.retry import RetryRequest
from app.domain.ids import RunId
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import ContextDep, WorkerDep, require_not_draining
from app.http.error_codes import error_responses
from app.http.headers import traceparent, transport_request_id
from app.http.idempotency_key import KeyDep
from app.workers.direct_start import retry_and_execute

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
    ),
    dependencies=[Depends(require_not_draining)],
)
async def retry_a_run(
    run_id: Uuid,
    request: Request,
    response: Response,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayWrite,
    key: KeyDep,
    body: RetryIn | None = None,
) -> RunOut:
    """A new run goes on from where this one has failed; this one stays as it is."""
    body = body or RetryIn()
    wish = RetryRequest(
        body.agent_version,
        body.wanted_limits(),
        traceparent(request),
        transport_request_id(request),
    )
    once = None if key is None else IdempotentCommand(key, accepted)
    record = (await retry_and_execute(ctx, worker, principal, RunId(run_id), wish, once)).record
    response.headers["Location"] = f"/v1/runs/{record.id}"
    return run_out(record)
