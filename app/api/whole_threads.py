"""Threads as a whole over HTTP: cancelled, copied, measured."""

from collections.abc import Mapping

from fastapi import APIRouter, Response

from app.api.runs import Wait
from app.api.schemas.common import Uuid
from app.api.schemas.runs import CancelIn, run_out
from app.api.schemas.threads import ThreadOut, thread_out
from app.api.schemas.whole_threads import (
    ForkIn,
    StorageOut,
    ThreadCancelled,
    ThreadCancelOut,
    storage_out,
    thread_cancel_out,
)
from app.api.threads import made, place
from app.control import reading
from app.control.cancel_thread import ThreadCancelAnswer, cancel_thread
from app.control.desk import Desk
from app.control.fork import fork
from app.control.once import Once
from app.control.waiting import until_rest
from app.domain.errors import AnsweredBefore
from app.domain.idempotency import KeptAnswer
from app.domain.ids import RunId, Tenant, ThreadId
from app.transport.access import AuthorizedRoute, MayRead, MayWrite
from app.transport.deps import DeskDep, LongPollsDep
from app.transport.refusals import refusals
from app.transport.repetitions import REPLAYED, KeyDep
from app.transport.sliced_json import sliced_json

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/threads", tags=["threads"])


@router.post(
    "/{thread_id}/cancel",
    response_model=ThreadCancelOut,
    status_code=202,
    responses={
        200: {"model": ThreadCancelOut, "description": "Settled: nothing runs or waits on it"},
        **refusals("thread_not_found"),
    },
)
async def cancel_runs_of_a_thread(
    thread_id: Uuid,
    desk: DeskDep,
    principal: MayWrite,
    polls: LongPollsDep,
    key: KeyDep,
    body: CancelIn | None = None,
    wait: Wait = None,
) -> Response:
    """Cancel the run that occupies the thread, and all that queue behind it. 200 means settled."""
    reason = None if body is None else body.reason
    once = None if key is None else Once(key, _as_cancelled)
    replayed: Mapping[str, str] = {}
    try:
        answer = await cancel_thread(desk, principal, ThreadId(thread_id), reason=reason, once=once)
    except AnsweredBefore as before:
        if not wait or before.answer.status == 200:
            raise
        told = ThreadCancelOut.model_validate_json(before.answer.body)
        run_ids = [RunId(run.run_id) for run in told.runs]
        answer = await _again(desk, principal.tenant, ThreadId(thread_id), run_ids)
        replayed = REPLAYED
    if wait:
        for run in answer.runs:
            if not run.is_done:
                await polls.hold(
                    until_rest(desk, principal.tenant, run.thread_id, run.id, wait, only_done=True)
                )
        run_ids = [run.id for run in answer.runs]
        answer = await _again(desk, principal.tenant, ThreadId(thread_id), run_ids)
    response = sliced_json(
        ThreadCancelled(thread_id=answer.thread_id, is_settled=answer.is_settled),
        "runs",
        answer.runs,
        run_out,
        status=200 if answer.is_settled else 202,
    )
    response.headers.update(replayed)
    return response


async def _again(
    desk: Desk, tenant: Tenant, thread_id: ThreadId, run_ids: list[RunId]
) -> ThreadCancelAnswer:
    """The same runs as they stand now."""
    views = [await reading.view(desk, tenant, run_id) for run_id in run_ids]
    return ThreadCancelAnswer(thread_id, tuple(view.run for view in views))


def _as_cancelled(answer: ThreadCancelAnswer) -> KeptAnswer:
    status = 200 if answer.is_settled else 202
    return KeptAnswer(status, thread_cancel_out(answer).model_dump_json())


@router.post(
    "/{thread_id}/fork",
    status_code=201,
    responses=refusals(
        "thread_not_found",
        "run_not_found",
        "run_not_finished",
        "run_never_began",
        "thread_exists",
        "seq_beyond_log",
    ),
)
async def fork_a_thread(
    thread_id: Uuid,
    desk: DeskDep,
    principal: MayWrite,
    response: Response,
    key: KeyDep,
    body: ForkIn | None = None,
) -> ThreadOut:
    """A new thread with a copy of this one's log, up to a message or to the end of a run."""
    once = None if key is None else Once(key, made)
    request = (body or ForkIn()).to_domain()
    thread = await fork(desk, principal, ThreadId(thread_id), request, once=once)
    response.headers["Location"] = place(thread)
    return thread_out(thread)


@router.get("/{thread_id}/storage", responses=refusals("thread_not_found"))
async def measure_a_thread(thread_id: Uuid, desk: DeskDep, principal: MayRead) -> StorageOut:
    """Rows and bytes of the thread in every table, and what merging has saved."""
    size = await reading.sizes_of_thread(desk, principal, ThreadId(thread_id))
    return storage_out(ThreadId(thread_id), size)
