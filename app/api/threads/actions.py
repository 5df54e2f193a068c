"""Routes about a whole thread: cancel and fork."""

from functools import partial

from fastapi import APIRouter, Response

from app.api.included import Included
from app.api.runs.interrupt_request import InterruptDep, Runs
from app.api.schemas.common import Uuid
from app.api.schemas.runs.actions import CancelIn
from app.api.schemas.runs.run import run_out
from app.api.schemas.thread_actions import (
    ForkIn,
    ThreadCancelled,
    ThreadCancelOut,
    thread_cancel_out,
)
from app.api.schemas.threads import ThreadOut
from app.api.threads.routes import thread_created, thread_location
from app.commands.idempotency import once_for
from app.commands.threads import cancel_thread as command
from app.commands.threads.cancel_thread import ThreadCancelAnswer
from app.commands.threads.fork import fork
from app.domain.idempotency import StoredResponse
from app.domain.ids import RunId, ThreadId
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.http.idempotency_key import KeyDep
from app.http.sliced_json import sliced_json

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
    principal: MayWrite,
    request: InterruptDep,
    body: CancelIn | None = None,
) -> Response:
    """Cancel all unfinished runs of a thread. 200: they are done. 202: they will be."""
    reason = None if body is None else body.reason
    once = once_for(request.key, partial(_as_cancelled, request.included))

    async def cancel() -> Runs:
        answer = await command.cancel_thread(
            request.ctx, principal, ThreadId(thread_id), reason=reason, once=once
        )
        return answer.runs

    done = await request.carry_out(
        principal.tenant,
        cancel,
        of_answer=_runs_of_answer,
        is_settled=lambda run: run.is_done,
        ends_runs=True,
    )
    answer = ThreadCancelAnswer(ThreadId(thread_id), tuple(done.runs))
    response = sliced_json(
        ThreadCancelled(thread_id=answer.thread_id, is_settled=answer.is_settled),
        "runs",
        answer.runs,
        lambda run: run_out(run, request.included),
        status=200 if answer.is_settled else 202,
    )
    response.headers.update(done.headers)
    return response


def _runs_of_answer(before: StoredResponse) -> list[RunId]:
    stored = ThreadCancelOut.model_validate_json(before.body)
    return [RunId(run.id) for run in stored.runs]


def _as_cancelled(included: Included, answer: ThreadCancelAnswer) -> StoredResponse:
    status = 200 if answer.is_settled else 202
    return StoredResponse(status, thread_cancel_out(answer, included).model_dump_json())


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
    once = once_for(key, thread_created)
    request = (body or ForkIn()).to_domain(principal.tenant)
    thread = await fork(ctx, principal, ThreadId(thread_id), request, once=once)
    response.headers["Location"] = thread_location(thread)
    return ThreadOut.model_validate(thread)
