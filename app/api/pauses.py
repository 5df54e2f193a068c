"""Pausing and resuming runs over HTTP."""

from fastapi import APIRouter, Response

from app.api.runs import Wait
from app.api.schemas.common import Uuid
from app.api.schemas.runs import PauseIn, RunOut, run_out
from app.control import reading
from app.control.once import Once
from app.control.pause import PauseAnswer, Unpaused, pause
from app.control.waiting import until_rest
from app.dispatch.launch import resume_run
from app.domain.errors import AnsweredBefore
from app.domain.idempotency import KeptAnswer
from app.domain.ids import RunId
from app.domain.runs import RunStatus
from app.transport.access import AuthorizedRoute, MayWrite
from app.transport.deps import DeskDep, LongPollsDep, WorkerDep
from app.transport.refusals import refusals
from app.transport.repetitions import REPLAYED, KeyDep

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


@router.post(
    "/{run_id}/pause",
    response_model=RunOut,
    status_code=202,
    responses={
        200: {"model": RunOut, "description": "Settled: no worker executes it"},
        **refusals("run_not_found", "run_finished", "backend_unsupported"),
    },
)
async def pause_a_run(
    run_id: Uuid,
    desk: DeskDep,
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
    once = None if key is None else Once(key, _as_paused)
    try:
        answer = await pause(desk, principal, RunId(run_id), reason=reason, once=once)
    except AnsweredBefore as before:
        if not wait or before.answer.status == 200:
            raise
        found = (await reading.view(desk, principal.tenant, RunId(run_id))).run
        answer = PauseAnswer(found, found.status is not RunStatus.RUNNING)
        response.headers.update(REPLAYED)
    run, settled = answer.run, answer.is_settled
    if wait and not settled:
        await polls.hold(until_rest(desk, principal.tenant, run.thread_id, run.id, wait))
        run = (await reading.view(desk, principal.tenant, run.id)).run
        settled = run.status is not RunStatus.RUNNING
    response.status_code = 200 if settled else 202
    return run_out(run)


@router.post("/{run_id}/resume", responses=refusals("run_not_found", "run_finished"))
async def resume_a_paused_run(
    run_id: Uuid, desk: DeskDep, worker: WorkerDep, principal: MayWrite, key: KeyDep
) -> RunOut:
    """Remove a run's pause. The run continues from where it was suspended."""
    once = None if key is None else Once(key, _as_resumed)
    return run_out((await resume_run(desk, worker, principal, RunId(run_id), once)).run)


def _as_paused(answer: PauseAnswer) -> KeptAnswer:
    return KeptAnswer(200 if answer.is_settled else 202, run_out(answer.run).model_dump_json())


def _as_resumed(unpaused: Unpaused) -> KeptAnswer:
    return KeptAnswer(200, run_out(unpaused.run).model_dump_json())
