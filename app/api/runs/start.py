"""Runs started over HTTP: answered at once, or when one has come to rest, or by its events."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response

from app.api.schemas.messages import bounded
from app.api.schemas.runs import RunOut, StartIn, run_out
from app.clock import new_id
from app.commands.idempotency import IdempotentCommand
from app.commands.runs.new_run import StartRequest
from app.commands.runs.start import ClaimedStart
from app.context import ServiceContext
from app.domain.errors import AlreadyAnswered
from app.domain.idempotency import KeptAnswer
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.inference.options import NO_OPTIONS
from app.domain.principals import Principal
from app.domain.runs.runs import RunRecord
from app.events.follow import StreamScope, follow
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import (
    ContextDep,
    LongPollsDep,
    StreamOptionsDep,
    WorkerDep,
    require_not_draining,
)
from app.http.error_codes import error_responses
from app.http.headers import preferred_wait, traceparent, transport_request_id, wants_event_stream
from app.http.idempotency_key import REPLAYED_HEADER, KeyDep
from app.http.sse import EventStream, StreamOptions
from app.queries import records
from app.queries.wait import wait_until_idle
from app.workers.direct_start import start_and_execute
from app.workers.worker import Worker

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


@router.post(
    "",
    status_code=202,
    response_model=RunOut,
    responses={
        200: {
            "description": "With `Accept: text/event-stream`: the run's events as they happen. "
            "With `Prefer: wait=N`: the run, when it came to rest in time.",
            "content": {"text/event-stream": {}},
        },
        **error_responses(
            "agent_not_found",
            "agent_required",
            "thread_not_found",
            "thread_busy",
            "run_id_conflict",
            "queue_full",
            "frontend_tool_taken",
            "schema_unsupported",
            "backend_unsupported",
            "message_empty",
            "message_too_large",
        ),
    },
    dependencies=[Depends(require_not_draining)],
)
async def start_a_run(
    body: StartIn,
    request: Request,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayWrite,
    options: StreamOptionsDep,
    key: KeyDep,
    polls: LongPollsDep,
    prefer: Annotated[
        str | None, Header(description="`wait=N`: answer when it is done or waits for somebody.")
    ] = None,
) -> Response:
    """Start a run. It goes on whether anybody listens or not."""
    start = _start_request(body, ctx.limits.message_bytes, request)
    once = None if key is None else IdempotentCommand(key, accepted)
    if wants_event_stream(request):
        return await _started_stream(ctx, worker, principal, start, once, options)
    seconds, replayed = preferred_wait(request), {}
    try:
        record = (await start_and_execute(ctx, worker, principal, start, once)).record
    except AlreadyAnswered as before:
        if not seconds:
            raise
        record, replayed = await _run_of(ctx, principal, before.answer), REPLAYED_HEADER
    view, rests = records.RunView(record), False
    if seconds:
        rests = await polls.hold(
            wait_until_idle(ctx, principal.tenant, record.thread_id, record.id, seconds)
        )
        view = await records.read_view(ctx, principal.tenant, record.id)
    return Response(
        run_out(view).model_dump_json(),
        status_code=200 if rests else 202,
        headers={"Location": _place(record), **replayed},
        media_type="application/json",
    )


def accepted(record: RunRecord) -> KeptAnswer:
    """What a start is told, and each of its repetitions."""
    return KeptAnswer(202, run_out(record).model_dump_json(), _place(record))


def _place(record: RunRecord) -> str:
    return f"/v1/runs/{record.id}"


async def _run_of(ctx: ServiceContext, principal: Principal, answer: KeptAnswer) -> RunRecord:
    """The run that an earlier start was told of, as it stands now."""
    run_id = RunId((answer.location or "").rpartition("/")[2])
    return (await records.read_view(ctx, principal.tenant, run_id)).run


async def _started_stream(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    start: StartRequest,
    once: IdempotentCommand[RunRecord] | None,
    options: StreamOptions,
) -> EventStream:
    # Listening begins before the run does, so that its first event needs no look into the log.
    subscription = ctx.hub.subscribe(principal.tenant, start.thread_id)
    is_live, replayed = False, {}
    try:
        started = await start_and_execute(ctx, worker, principal, start, once)
        record, is_live = started.record, isinstance(started, ClaimedStart)
    except AlreadyAnswered as before:
        record, replayed = await _run_of(ctx, principal, before.answer), REPLAYED_HEADER
    finally:
        if not is_live:
            subscription.close()
    follower = follow(
        ctx.database.pool,
        ctx.hub,
        StreamScope(principal.tenant, record.thread_id, record.id),
        after=record.events_from - 1,
        heartbeat=options.heartbeat,
        subscription=subscription if is_live else None,
    )
    headers = {
        "Location": f"{_place(record)}/events",
        "Content-Location": _place(record),
        **replayed,
    }
    return EventStream(follower, options, headers=headers)


def _start_request(body: StartIn, message_bytes: int, request: Request) -> StartRequest:
    return StartRequest(
        agent_id=None if body.agent_id is None else AgentId(body.agent_id),
        thread_id=ThreadId(body.thread_id or new_id()),
        run_id=None if body.run_id is None else RunId(body.run_id),
        messages=bounded(body.messages, message_bytes),
        on_active=body.on_active,
        if_thread_missing=body.if_thread_missing,
        metadata=body.metadata,
        digest=body.fingerprint(),
        traceparent=traceparent(request),
        transport_request_id=transport_request_id(request),
        ticket_policy=None
        if body.ticket_policy is None
        else body.ticket_policy.model_dump(mode="json", exclude_none=True),
        limits=body.wanted_limits(),
        overrides=NO_OPTIONS if body.overrides is None else body.overrides.to_domain(),
        frontend_tools=tuple(tool.model_dump() for tool in body.frontend_tools),
    )
