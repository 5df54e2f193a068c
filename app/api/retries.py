"""Retries over HTTP: a new run in a failed one's place."""

from fastapi import APIRouter, Depends, Request, Response

from app.api.runs import accepted
from app.api.schemas.common import Problem, Uuid
from app.api.schemas.runs import RetryIn, RunOut, run_out
from app.control.once import Once
from app.control.retry import RetryRequest, VersionOfAgent
from app.dispatch.launch import retry_run
from app.domain.ids import RunId
from app.transport.deps import DeskDep, PrincipalDep, WorkerDep, require_staying
from app.transport.headers import traceparent
from app.transport.repetitions import KeyDep

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.post(
    "/{run_id}/retry",
    status_code=202,
    responses={
        404: {"model": Problem, "description": "Not here"},
        409: {"model": Problem, "description": "Not ended, not failed, or not the latest"},
        429: {"model": Problem, "description": "Too many runs queue for the thread"},
        503: {"model": Problem, "description": "This server is stopping; another one takes it"},
    },
    dependencies=[Depends(require_staying)],
)
async def retry_a_run(
    run_id: Uuid,
    request: Request,
    response: Response,
    desk: DeskDep,
    worker: WorkerDep,
    principal: PrincipalDep,
    key: KeyDep,
    body: RetryIn | None = None,
) -> RunOut:
    """A new run goes on from where this one has failed; this one stays as it is."""
    version = VersionOfAgent.SAME if body is None else body.agent_version
    wish = RetryRequest(version, traceparent(request))
    once = None if key is None else Once(key, accepted)
    record = (await retry_run(desk, worker, principal, RunId(run_id), wish, once)).record
    response.headers["Location"] = f"/v1/runs/{record.id}"
    return run_out(record)
