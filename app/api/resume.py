"""Single decisions over HTTP, by run and by thread, in the two words of awaken."""

from fastapi import APIRouter

from app.api.schemas.common import Uuid
from app.api.schemas.resume import ResumeIn, SubmittedOut
from app.commands.idempotency import IdempotentCommand
from app.commands.tickets.decide import Decided
from app.commands.tickets.resume import as_decision, run_to_resume
from app.context import ServiceContext
from app.domain.idempotency import IdempotencyKey, KeptAnswer
from app.domain.ids import RunId, ThreadId
from app.domain.principals import Principal
from app.http.access import AuthorizedRoute, MayDecide
from app.http.deps import ContextDep, WorkerDep
from app.http.error_codes import error_responses
from app.http.idempotency_key import KeyDep
from app.workers.direct_start import decide_and_execute
from app.workers.worker import Worker

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1")
_OF_DECISIONS = (
    "ticket_not_found",
    "ticket_already_decided",
    "ticket_expired",
    "ticket_void",
    "approver_not_allowed",
    "already_voted",
    "decision_id_conflict",
    "arguments_invalid",
    "response_schema_violation",
    "agent_version_unavailable",
)


@router.post(
    "/runs/{run_id}/decision",
    status_code=202,
    responses=error_responses("run_not_found", *_OF_DECISIONS),
    tags=["runs"],
)
async def resume_a_run(
    run_id: Uuid,
    body: ResumeIn,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayDecide,
    key: KeyDep,
) -> SubmittedOut:
    """Answer one ticket of a run with `resume` or `cancel`."""
    return await _submit(ctx, worker, principal, RunId(run_id), body, key)


@router.post(
    "/threads/{thread_id}/decision",
    status_code=202,
    responses=error_responses("thread_not_found", *_OF_DECISIONS),
    tags=["threads"],
)
async def resume_a_thread(
    thread_id: Uuid,
    body: ResumeIn,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayDecide,
    key: KeyDep,
) -> SubmittedOut:
    """Answer one ticket of the run that occupies a thread."""
    run_id = await run_to_resume(ctx, principal, ThreadId(thread_id))
    return await _submit(ctx, worker, principal, run_id, body, key)


async def _submit(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    body: ResumeIn,
    key: IdempotencyKey | None,
) -> SubmittedOut:
    decision = await as_decision(ctx, principal, run_id, body.to_domain())
    once = None if key is None else IdempotentCommand(key, _as_submitted)
    return _submitted_out(
        await decide_and_execute(ctx, worker, principal, run_id, [decision], once)
    )


def _as_submitted(decided: Decided) -> KeptAnswer:
    return KeptAnswer(202, _submitted_out(decided).model_dump_json())


def _submitted_out(decided: Decided) -> SubmittedOut:
    [result] = decided.results
    return SubmittedOut(
        thread_id=decided.run.thread_id,
        run_id=decided.run.id,
        ticket_id=result.ticket.name,
        tool_call_id=result.ticket.call_id,
        decision_id=result.decision.decision_id,
    )
