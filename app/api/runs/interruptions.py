"""Routes that cancel, pause and resume runs."""

from functools import partial
from typing import Protocol

from fastapi import APIRouter, Response

from app.api.included import Included, IncludeDep
from app.api.runs.interrupt_request import InterruptDep, InterruptRequest, Runs
from app.api.schemas.common import Uuid
from app.api.schemas.runs.actions import CancelIn, PauseIn
from app.api.schemas.runs.run import RunOut, run_out
from app.commands.idempotency import IdempotentCommand, once_for
from app.commands.runs.cancel import cancel
from app.commands.runs.pause import Unpaused, pause, unpause
from app.domain.idempotency import StoredResponse
from app.domain.ids import RunId
from app.domain.principals import Principal
from app.domain.runs.runs import RunRecord, RunStatus
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import ContextDep, WorkerDep
from app.http.error_codes import error_responses
from app.http.idempotency_key import KeyDep
from app.workers.direct_start import execute_here

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


@router.post(
    "/{run_id}/cancel",
    response_model=RunOut,
    status_code=202,
    responses={
        200: {"model": RunOut, "description": "The run is done"},
        **error_responses("run_not_found"),
    },
)
async def cancel_run(
    run_id: Uuid,
    principal: MayWrite,
    request: InterruptDep,
    response: Response,
    body: CancelIn | None = None,
) -> RunOut:
    """Cancel a run in any status. 200: it is done. 202: it will be."""
    reason = None if body is None else body.reason
    command = partial(cancel, request.ctx, principal, RunId(run_id), reason=reason)
    return await _interrupt(request, principal, RunId(run_id), command, response, ends_run=True)


@router.post(
    "/{run_id}/pause",
    response_model=RunOut,
    status_code=202,
    responses={
        200: {"model": RunOut, "description": "The run is paused and no worker executes it"},
        **error_responses("run_not_found", "run_finished", "backend_unsupported"),
    },
)
async def pause_run(
    run_id: Uuid,
    principal: MayWrite,
    request: InterruptDep,
    response: Response,
    body: PauseIn | None = None,
) -> RunOut:
    """Suspend a run until it is resumed. 200: it is suspended. 202: it will be, after its current step."""
    reason = None if body is None else body.reason
    command = partial(pause, request.ctx, principal, RunId(run_id), reason=reason)
    return await _interrupt(request, principal, RunId(run_id), command, response, ends_run=False)


@router.post("/{run_id}/resume", responses=error_responses("run_not_found", "run_finished"))
async def resume_run(
    run_id: Uuid,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayWrite,
    key: KeyDep,
    included: IncludeDep,
) -> RunOut:
    """Resume a paused run. It continues where it was suspended."""
    once = once_for(key, partial(_as_resumed, included))
    command = partial(unpause, ctx, principal, RunId(run_id), once=once)
    return run_out((await execute_here(worker, command)).run, included)


def _as_resumed(included: Included, unpaused: Unpaused) -> StoredResponse:
    return StoredResponse(200, run_out(unpaused.run, included).model_dump_json())


class _Command(Protocol):
    """A cancel or a pause, which takes effect now or later."""

    async def __call__(self, *, once: IdempotentCommand[RunRecord] | None) -> RunRecord: ...


async def _interrupt(
    request: InterruptRequest,
    principal: Principal,
    run_id: RunId,
    command: _Command,
    response: Response,
    *,
    ends_run: bool,
) -> RunOut:
    """Do the command, and answer with the run: 200 if the command has taken effect, else 202."""

    def is_settled(run: RunRecord) -> bool:
        return run.is_done if ends_run else run.status is not RunStatus.RUNNING

    def status(run: RunRecord) -> int:
        return 200 if is_settled(run) else 202

    def answer_of(run: RunRecord) -> StoredResponse:
        return StoredResponse(status(run), run_out(run, request.included).model_dump_json())

    async def interrupt() -> Runs:
        return [await command(once=once_for(request.key, answer_of))]

    done = await request.carry_out(
        principal.tenant,
        interrupt,
        of_answer=lambda _: [run_id],
        is_settled=is_settled,
        ends_runs=ends_run,
    )
    [run] = done.runs
    response.headers.update(done.headers)
    response.status_code = status(run)
    return run_out(run, request.included)
