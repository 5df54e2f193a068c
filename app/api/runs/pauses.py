"""Pausing and resuming runs over HTTP."""

from fastapi import APIRouter, Response

from app.api.runs.routes import Wait
from app.api.schemas.common import Uuid
from app.api.schemas.runs import PauseIn, RunOut, run_out
from app.commands.idempotency import IdempotentCommand
from app.commands.runs.pause import PauseAnswer, Unpaused, pause
from app.domain.errors import AlreadyAnswered
from app.domain.idempotency import KeptAnswer
from app.domain.ids import RunId
from app.domain.runs.runs import RunStatus
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import ContextDep, LongPollsDep, WorkerDep
from app.http.error_codes import error_responses
from app.http.idempotency_key import REPLAYED_HEADER, KeyDep
from app.queries import records
from app.queries.wait import wait_until_idle
from app.workers.direct_start import resume_run

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


@router.post(
    "/{run_id}/pause",
    response_model=RunOut,
    status_code=202,
    responses={
        200: {"model": RunOut, "description": "Settled: no worker executes it"},
        **error_responses("run_not_found", "run_finished", "backend_unsupported"),
    },
)
async def pause_a_run(
    run_id: Uuid,
    ctx: ContextDep,
    principal: MayWrite,
    polls: LongPollsDep,
    response: Response,
    key: KeyDep,
    body: PauseIn | None = None,
    wait: Wait = None,
) -> RunOut:
    """Suspend a run until it is resumed. 200 means that it is settled, 202 that a worker still executes
    the run, up to its next step border."""
    reason = None if body is None else body.reason
    once = None if key is None else IdempotentCommand(key, _as_paused)
    try:
        answer = await pause(ctx, principal, RunId(run_id), reason=reason, once=once)
    except AlreadyAnswered as before:
        if not wait or before.answer.status == 200:
            raise
        found = (await records.read_view(ctx, principal.tenant, RunId(run_id))).run
        answer = PauseAnswer(found, found.status is not RunStatus.RUNNING)
        response.headers.update(REPLAYED_HEADER)
    run, settled = answer.run, answer.is_settled
    if wait and not settled:
        await polls.hold(wait_until_idle(ctx, principal.tenant, run.thread_id, run.id, wait))
        run = (await records.read_view(ctx, principal.tenant, run.id)).run
        settled = run.status is not RunStatus.RUNNING
    response.status_code = 200 if settled else 202
    return run_out(run)


@router.post("/{run_id}/resume", responses=error_responses("run_not_found", "run_finished"))
async def resume_a_paused_run(
    run_id: Uuid, ctx: ContextDep, worker: WorkerDep, principal: MayWrite, key: KeyDep
) -> RunOut:
    """Remove a run's pause. The run continues from where it was suspended."""
    once = None if key is None else IdempotentCommand(key, _as_resumed)
    return run_out((await resume_run(ctx, worker, principal, RunId(run_id), once)).run)


def _as_paused(answer: PauseAnswer) -> KeptAnswer:
    return KeptAnswer(200 if answer.is_settled else 202, run_out(answer.run).model_dump_json())


def _as_resumed(unpaused: Unpaused) -> KeptAnswer:
    return KeptAnswer(200, run_out(unpaused.run).model_dump_json())
