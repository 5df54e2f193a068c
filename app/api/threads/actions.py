"""Threads as a whole over HTTP: cancelled, copied, measured."""

from collections.abc import Mapping

from fastapi import APIRouter, Response

from app.api.runs.routes import Wait
from app.api.schemas.common import Uuid
from app.api.schemas.runs import CancelIn, run_out
from app.api.schemas.thread_actions import (
    ForkIn,
    StorageOut,
    ThreadCancelled,
    ThreadCancelOut,
    storage_out,
    thread_cancel_out,
)
from app.api.schemas.threads import ThreadOut, thread_out
from app.api.threads.routes import thread_created, thread_location
from app.commands.idempotency import IdempotentCommand
from app.commands.threads.cancel_thread import ThreadCancelAnswer, cancel_thread
from app.commands.threads.fork import fork
from app.context import ServiceContext
from app.domain.errors import AlreadyAnswered
from app.domain.idempotency import KeptAnswer
from app.domain.ids import RunId, Tenant, ThreadId
from app.http.access import AuthorizedRoute, MayRead, MayWrite
from app.http.deps import ContextDep, LongPollsDep
from app.http.error_codes import error_responses
from app.http.idempotency_key import REPLAYED_HEADER, KeyDep
from app.http.sliced_json import sliced_json
from app.queries import records
from app.queries.wait import wait_until_idle

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/threads", tags=["threads"])


@router.post(
    "/{thread_id}/cancel",
    response_model=ThreadCancelOut,
    status_code=202,
    responses={
        200: {"model": ThreadCancelOut, "description": "Settled: nothing runs or waits on it"},
        **error_responses("thread_not_found"),
    },
)
async def cancel_runs_of_a_thread(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayWrite,
    polls: LongPollsDep,
    key: KeyDep,
    body: CancelIn | None = None,
    wait: Wait = None,
) -> Response:
    """Cancel the run that occupies the thread, and all that queue behind it. 200 means settled."""
    reason = None if body is None else body.reason
    once = None if key is None else IdempotentCommand(key, _as_cancelled)
    replayed: Mapping[str, str] = {}
    try:
        answer = await cancel_thread(ctx, principal, ThreadId(thread_id), reason=reason, once=once)
    except AlreadyAnswered as before:
        if not wait or before.answer.status == 200:
            raise
        told = ThreadCancelOut.model_validate_json(before.answer.body)
        run_ids = [RunId(run.run_id) for run in told.runs]
        answer = await _again(ctx, principal.tenant, ThreadId(thread_id), run_ids)
        replayed = REPLAYED_HEADER
    if wait:
        for run in answer.runs:
            if not run.is_done:
                await polls.hold(
                    wait_until_idle(
                        ctx, principal.tenant, run.thread_id, run.id, wait, only_done=True
                    )
                )
        run_ids = [run.id for run in answer.runs]
        answer = await _again(ctx, principal.tenant, ThreadId(thread_id), run_ids)
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
    ctx: ServiceContext, tenant: Tenant, thread_id: ThreadId, run_ids: list[RunId]
) -> ThreadCancelAnswer:
    """The same runs as they stand now."""
    views = [await records.read_view(ctx, tenant, run_id) for run_id in run_ids]
    return ThreadCancelAnswer(thread_id, tuple(view.run for view in views))


def _as_cancelled(answer: ThreadCancelAnswer) -> KeptAnswer:
    status = 200 if answer.is_settled else 202
    return KeptAnswer(status, thread_cancel_out(answer).model_dump_json())


@router.post(
    "/{thread_id}/fork",
    status_code=201,
    responses=error_responses(
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
    ctx: ContextDep,
    principal: MayWrite,
    response: Response,
    key: KeyDep,
    body: ForkIn | None = None,
) -> ThreadOut:
    """A new thread with a copy of this one's log, up to a message or to the end of a run."""
    once = None if key is None else IdempotentCommand(key, thread_created)
    request = (body or ForkIn()).to_domain()
    thread = await fork(ctx, principal, ThreadId(thread_id), request, once=once)
    response.headers["Location"] = thread_location(thread)
    return thread_out(thread)


@router.get("/{thread_id}/storage", responses=error_responses("thread_not_found"))
async def measure_a_thread(thread_id: Uuid, ctx: ContextDep, principal: MayRead) -> StorageOut:
    """Rows and bytes of the thread in every table, and what merging has saved."""
    size = await records.sizes_of_thread(ctx, principal, ThreadId(thread_id))
    return storage_out(ThreadId(thread_id), size)
