"""Retries over HTTP: a new run in a failed one's place."""

from fastapi import APIRouter, Depends, Request, Response

from app.api.schemas.common import Uuid
from app.api.schemas.runs import RetryIn, RunOut, run_out
from app.api.starts import accepted
from app.control.once import Once
from app.control.retry import RetryRequest
from app.dispatch.launch import retry_run
from app.domain.ids import RunId
from app.transport.access import AuthorizedRoute, MayWrite
from app.transport.deps import DeskDep, WorkerDep, require_staying
from app.transport.headers import traceparent, transport_request_id
from app.transport.refusals import refusals
from app.transport.repetitions import KeyDep

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


@router.post(
    "/{run_id}/retry",
    status_code=202,
    responses=refusals(
        "run_not_found",
        "run_not_finished",
        "not_retryable",
        "queue_full",
        "agent_not_found",
        "backend_unsupported",
    ),
    dependencies=[Depends(require_staying)],
)
async def retry_a_run(
    run_id: Uuid,
    request: Request,
    response: Response,
    desk: DeskDep,
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
    once = None if key is None else Once(key, accepted)
    record = (await retry_run(desk, worker, principal, RunId(run_id), wish, once)).record
    response.headers["Location"] = f"/v1/runs/{record.id}"
    return run_out(record)
