"""Route that starts a run. It returns at once, or waits for the run, or streams its events."""

from collections.abc import Mapping
from functools import partial

from fastapi import APIRouter, Depends, Request, Response

from app.api.event_streams import selection
from app.api.included import Included, IncludeDep
from app.api.runs.waiting import Follow, WaitDep, wait_for
from app.api.schemas.messages import bounded, chosen_ids
from app.api.schemas.runs.run import RunOut, run_out
from app.api.schemas.runs.start import StartIn
from app.clock import new_id
from app.commands.idempotency import IdempotentCommand, once_for
from app.commands.runs.new_run import StartRequest
from app.context import ServiceContext
from app.domain.errors import AlreadyAnswered
from app.domain.idempotency import StoredResponse
from app.domain.ids import AgentId, RunId, Tenant, ThreadId
from app.domain.inference.options import NO_OPTIONS
from app.domain.principals import Principal
from app.domain.runs.runs import RunRecord
from app.events.follow import StreamScope, follow
from app.events.selection import EventSelection
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import (
    ContextDep,
    LongPollsDep,
    StreamOptionsDep,
    WorkerDep,
    require_not_draining,
)
from app.http.error_codes import error_responses
from app.http.headers import traceparent, transport_request_id, wants_event_stream
from app.http.idempotency_key import REPLAYED_HEADER, KeyDep
from app.http.sse import EventStream, StreamOptions
from app.queries import records
from app.workers.direct_start import start_and_execute
from app.workers.worker import Worker

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])


@router.post(
    "",
    status_code=202,
    response_model=RunOut,
    responses={
        200: {
            "model": RunOut,
            "description": "With `Accept: text/event-stream`: the run's events as they happen. "
            "With `wait`: the run, if it was done or needed a decision in time.",
            "content": {"text/event-stream": {}},
        },
        **error_responses(
            "agent_not_found",
            "agent_required",
            "thread_not_found",
            "thread_busy",
            "run_id_conflict",
            "message_id_conflict",
            "message_not_found",
            "run_not_found",
            "run_never_began",
            "not_replaceable",
            "queue_full",
            "frontend_tool_taken",
            "tool_not_found",
            "schema_unsupported",
            "backend_unsupported",
            "price_unknown",
            "file_not_found",
            "files_unavailable",
            "media_type_mismatch",
            "message_empty",
            "message_too_large",
        ),
    },
    dependencies=[Depends(require_not_draining)],
)
async def start_run(
    body: StartIn,
    request: Request,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayWrite,
    options: StreamOptionsDep,
    key: KeyDep,
    polls: LongPollsDep,
    wait: WaitDep,
    included: IncludeDep,
    follow: Follow = False,
) -> Response:
    """Start a run. It continues if the client disconnects."""
    start = _start_request(body, principal.tenant, ctx.limits.message_bytes, request)
    once = once_for(key, partial(accepted, included))
    if wants_event_stream(request):
        return await _started_stream(
            ctx, worker, principal, start, once, options, selection(included), follow
        )
    replayed: Mapping[str, str] = {}
    try:
        record = (await start_and_execute(ctx, worker, principal, start, once)).record
    except AlreadyAnswered as before:
        if not wait.seconds:
            raise
        record, replayed = await _run_of(ctx, principal, before.answer), REPLAYED_HEADER
    view, is_settled = records.RunView(record), False
    if wait.seconds:
        is_settled = await wait_for(ctx, principal.tenant, polls, [record], wait, until_done=follow)
        view = await records.read_view(ctx, principal.tenant, record.id)
    return Response(
        run_out(view, included).model_dump_json(),
        status_code=200 if is_settled else 202,
        headers={"Location": _location(record), **replayed, **wait.headers},
        media_type="application/json",
    )


def accepted(included: Included, record: RunRecord) -> StoredResponse:
    """The response to a start, which is stored for repetitions."""
    return StoredResponse(202, run_out(record, included).model_dump_json(), _location(record))


def _location(record: RunRecord) -> str:
    return f"/v1/runs/{record.id}"


async def _run_of(ctx: ServiceContext, principal: Principal, answer: StoredResponse) -> RunRecord:
    """The current state of the run that an earlier request started."""
    run_id = RunId((answer.location or "").rpartition("/")[2])
    return (await records.read_view(ctx, principal.tenant, run_id)).run


async def _started_stream(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    start: StartRequest,
    once: IdempotentCommand[RunRecord] | None,
    options: StreamOptions,
    selected: EventSelection,
    until_done: bool,
) -> EventStream:
    # Subscribe before the run starts, so that its first event needn't be read from the log.
    subscription = ctx.hub.subscribe(principal.tenant, start.thread_id)
    is_live, replayed = False, {}
    try:
        started = await start_and_execute(ctx, worker, principal, start, once)
        record, is_live = started.record, started.claimed is not None
    except AlreadyAnswered as before:
        record, replayed = await _run_of(ctx, principal, before.answer), REPLAYED_HEADER
    finally:
        if not is_live:
            subscription.close()
    follower = follow(
        ctx.database.pool,
        ctx.hub,
        StreamScope(principal.tenant, record.thread_id, record.id, until_done=until_done),
        after=record.events_from - 1,
        heartbeat=options.heartbeat,
        subscription=subscription if is_live else None,
        selected=selected,
    )
    headers = {
        "Location": f"{_location(record)}/events",
        "Content-Location": _location(record),
        **replayed,
    }
    return EventStream(follower, options, of_one_run=True, headers=headers)


def _start_request(
    body: StartIn, tenant: Tenant, message_bytes: int, request: Request
) -> StartRequest:
    return StartRequest(
        agent_id=None if body.agent_id is None else AgentId(body.agent_id),
        thread_id=body.thread_in(tenant) or ThreadId(new_id()),
        thread_key=body.thread_key,
        run_id=None if body.run_id is None else RunId(body.run_id),
        messages=bounded(body.messages, message_bytes),
        chosen_ids=chosen_ids(body.messages),
        replaces=body.wanted_replacement(),
        on_active=body.on_active,
        if_thread_missing=body.if_thread_missing,
        metadata=body.metadata,
        context=body.context,
        digest=body.fingerprint(),
        traceparent=traceparent(request),
        transport_request_id=transport_request_id(request),
        ticket_policy=None
        if body.ticket_policy is None
        else body.ticket_policy.model_dump(mode="json", exclude_none=True),
        limits=body.wanted_limits(),
        answer=body.wanted_answer(),
        overrides=NO_OPTIONS if body.overrides is None else body.overrides.to_domain(),
        frontend_tools=tuple(tool.model_dump() for tool in body.frontend_tools),
    )
