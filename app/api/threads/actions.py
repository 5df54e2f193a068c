"""Routes about a whole thread: cancel and fork."""

from collections.abc import Mapping

from fastapi import APIRouter, Response

from app.api.runs.routes import Wait
from app.api.schemas.common import Uuid
from app.api.schemas.runs import CancelIn, run_out
from app.api.schemas.thread_actions import (
    ForkIn,
    ThreadCancelled,
    ThreadCancelOut,
    thread_cancel_out,
)
from app.api.schemas.threads import ThreadOut, thread_out
from app.api.threads.routes import thread_created, thread_location
from app.commands.idempotency import IdempotentCommand
from app.commands.threads import cancel_thread as command
from app.commands.threads.cancel_thread import ThreadCancelAnswer
from app.commands.threads.fork import fork
from app.context import ServiceContext
from app.domain.errors import AlreadyAnswered
from app.domain.idempotency import KeptAnswer
from app.domain.ids import RunId, Tenant, ThreadId
from app.http.access import AuthorizedRoute, MayWrite
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
        200: {"model": ThreadCancelOut, "description": "All runs of the thread are done"},
        **error_responses("thread_not_found"),
    },
)
async def cancel_thread(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayWrite,
    polls: LongPollsDep,
    key: KeyDep,
    body: CancelIn | None = None,
    wait: Wait = None,
) -> Response:
    """Cancel all unfinished runs of a thread. 200: they are done. 202: they will be."""
    reason = None if body is None else body.reason
    once = None if key is None else IdempotentCommand(key, _as_cancelled)
    replayed: Mapping[str, str] = {}
    try:
        answer = await command.cancel_thread(
            ctx, principal, ThreadId(thread_id), reason=reason, once=once
        )
    except AlreadyAnswered as before:
        if not wait or before.answer.status == 200:
            raise
        stored = ThreadCancelOut.model_validate_json(before.answer.body)
        run_ids = [RunId(run.run_id) for run in stored.runs]
        answer = await _current(ctx, principal.tenant, ThreadId(thread_id), run_ids)
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
        answer = await _current(ctx, principal.tenant, ThreadId(thread_id), run_ids)
    response = sliced_json(
        ThreadCancelled(thread_id=answer.thread_id, is_settled=answer.is_settled),
        "runs",
        answer.runs,
        run_out,
        status=200 if answer.is_settled else 202,
    )
    response.headers.update(replayed)
    return response


async def _current(
    ctx: ServiceContext, tenant: Tenant, thread_id: ThreadId, run_ids: list[RunId]
) -> ThreadCancelAnswer:
    """The current state of these runs."""
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
async def fork_thread(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayWrite,
    response: Response,
    key: KeyDep,
    body: ForkIn | None = None,
) -> ThreadOut:
    """Create a thread with a copy of this one's log, up to a message or to the end of a run."""
    once = None if key is None else IdempotentCommand(key, thread_created)
    request = (body or ForkIn()).to_domain()
    thread = await fork(ctx, principal, ThreadId(thread_id), request, once=once)
    response.headers["Location"] = thread_location(thread)
    return thread_out(thread)
