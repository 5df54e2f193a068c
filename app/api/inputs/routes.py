"""Routes that send messages to a run or a thread."""

from functools import partial

from fastapi import APIRouter, Request, Response

from app.api.schemas.common import Uuid
from app.api.schemas.inputs import InputsAcceptedOut, InputsIn, ThreadMessagesIn
from app.api.schemas.messages import bounded, chosen_ids
from app.commands.idempotency import once_for
from app.commands.inputs.send import (
    AcceptedInput,
    InputRequest,
    Target,
    ToRun,
    ToThread,
    send_input,
)
from app.context import ServiceContext
from app.domain.idempotency import IdempotencyKey, StoredResponse
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.principals import Principal
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import ContextDep, WorkerDep
from app.http.error_codes import error_responses
from app.http.headers import traceparent, transport_request_id
from app.http.idempotency_key import KeyDep
from app.workers.direct_start import execute_here
from app.workers.worker import Worker

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1")
_OF_MESSAGES = ("message_empty", "message_too_large", "message_id_conflict", "queue_full")
_OF_AN_OPEN_RUN = (
    "run_not_waiting",
    "decisions_needed",
    "answer_without_text",
    "response_schema_violation",
    "agent_version_unavailable",
    "not_steerable",
    "run_paused",
    "backend_unsupported",
    "price_unknown",
    "file_not_found",
    "files_unavailable",
    "media_type_mismatch",
)


@router.post(
    "/runs/{run_id}/inputs",
    status_code=202,
    responses=error_responses(
        "run_not_found",
        "run_finished",
        "agent_not_found",
        *_OF_AN_OPEN_RUN,
        *_OF_MESSAGES,
    ),
    tags=["inputs"],
)
async def send_run_inputs(
    run_id: Uuid,
    body: InputsIn,
    request: Request,
    response: Response,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayWrite,
    key: KeyDep,
) -> InputsAcceptedOut:
    """Send messages to a run, or queue a new run behind it. A run that waits for decisions reads them after
    the decisions."""
    wanted = InputRequest(
        messages=bounded(body.messages, ctx.limits.message_bytes),
        chosen_ids=chosen_ids(body.messages),
        mode=body.mode,
        limits=body.wanted_limits(),
        traceparent=traceparent(request),
        transport_request_id=transport_request_id(request),
    )
    target = ToRun(RunId(run_id))
    return await _send(ctx, worker, principal, target, wanted, key, response)


@router.post(
    "/threads/{thread_id}/messages",
    status_code=202,
    responses=error_responses(
        "thread_not_found",
        "agent_not_found",
        "agent_required",
        *_OF_AN_OPEN_RUN,
        *_OF_MESSAGES,
    ),
    tags=["inputs"],
)
async def send_thread_messages(
    thread_id: Uuid,
    body: ThreadMessagesIn,
    request: Request,
    response: Response,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayWrite,
    key: KeyDep,
) -> InputsAcceptedOut:
    """Send messages to the thread's open run, or start or queue a new run."""
    wanted = InputRequest(
        messages=bounded(body.messages, ctx.limits.message_bytes),
        chosen_ids=chosen_ids(body.messages),
        mode=body.mode,
        limits=body.wanted_limits(),
        agent_id=None if body.agent_id is None else AgentId(body.agent_id),
        traceparent=traceparent(request),
        transport_request_id=transport_request_id(request),
    )
    target = ToThread(ThreadId(thread_id))
    return await _send(ctx, worker, principal, target, wanted, key, response)


async def _send(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    target: Target,
    wanted: InputRequest,
    key: IdempotencyKey | None,
    response: Response,
) -> InputsAcceptedOut:
    once = once_for(key, _as_accepted)
    command = partial(send_input, ctx, principal, target, wanted, once=once)
    accepted = await execute_here(worker, command)
    response.headers["Location"] = _location(accepted)
    return InputsAcceptedOut.model_validate(accepted)


def _as_accepted(accepted: AcceptedInput) -> StoredResponse:
    return StoredResponse(
        202, InputsAcceptedOut.model_validate(accepted).model_dump_json(), _location(accepted)
    )


def _location(accepted: AcceptedInput) -> str:
    return f"/v1/runs/{accepted.run.id}"
