"""Inputs over HTTP: messages for a run that is there, by run and by thread."""

from fastapi import APIRouter, Request, Response

from app.api.schemas.common import Uuid
from app.api.schemas.inputs import InputsAcceptedOut, InputsIn, ThreadMessagesIn, accepted_out
from app.api.schemas.messages import bounded
from app.commands.idempotency import IdempotentCommand
from app.commands.inputs.send import AcceptedInput, InputRequest, Target, ToRun, ToThread
from app.context import ServiceContext
from app.domain.idempotency import IdempotencyKey, KeptAnswer
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.principals import Principal
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import ContextDep, WorkerDep
from app.http.error_codes import error_responses
from app.http.headers import traceparent, transport_request_id
from app.http.idempotency_key import KeyDep
from app.workers.direct_start import send_and_execute
from app.workers.worker import Worker

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1")
_OF_MESSAGES = ("message_empty", "message_too_large", "queue_full")
_OF_A_RUN_THAT_IS_THERE = (
    "run_not_waiting",
    "decisions_needed",
    "answer_without_text",
    "response_schema_violation",
    "agent_version_unavailable",
    "not_steerable",
    "run_paused",
    "backend_unsupported",
)


@router.post(
    "/runs/{run_id}/inputs",
    status_code=202,
    responses=error_responses(
        "run_not_found",
        "run_finished",
        "agent_not_found",
        *_OF_A_RUN_THAT_IS_THERE,
        *_OF_MESSAGES,
    ),
    tags=["runs"],
)
async def send_messages_to_a_run(
    run_id: Uuid,
    body: InputsIn,
    request: Request,
    response: Response,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayWrite,
    key: KeyDep,
) -> InputsAcceptedOut:
    """Steer a run, let one go on that waits for this, or queue a new one behind it. A run that waits
    for decisions reads what it is steered with when it goes on."""
    wanted = InputRequest(
        messages=bounded(body.messages, ctx.limits.message_bytes),
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
        *_OF_A_RUN_THAT_IS_THERE,
        *_OF_MESSAGES,
    ),
    tags=["threads"],
)
async def send_messages_to_a_thread(
    thread_id: Uuid,
    body: ThreadMessagesIn,
    request: Request,
    response: Response,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayWrite,
    key: KeyDep,
) -> InputsAcceptedOut:
    """Queue a run on a thread, or steer the one that occupies it; where none does, one is started.
    `resume_open_run` needs one that waits."""
    wanted = InputRequest(
        messages=bounded(body.messages, ctx.limits.message_bytes),
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
    once = None if key is None else IdempotentCommand(key, _as_accepted)
    accepted = await send_and_execute(ctx, worker, principal, target, wanted, once)
    response.headers["Location"] = _place(accepted)
    return accepted_out(accepted)


def _as_accepted(accepted: AcceptedInput) -> KeptAnswer:
    return KeptAnswer(202, accepted_out(accepted).model_dump_json(), _place(accepted))


def _place(accepted: AcceptedInput) -> str:
    return f"/v1/runs/{accepted.run.id}"
