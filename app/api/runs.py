"""Runs over HTTP: start, read, follow, decide, cancel."""

import re
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from app.api.schemas.common import Page, Problem, Uuid
from app.api.schemas.messages import message_out
from app.api.schemas.runs import (
    CancelIn,
    DecidedOut,
    EventsPage,
    RunOut,
    SnapshotOut,
    StartIn,
    run_out,
)
from app.api.schemas.tickets import DecisionsIn, decision_result_out, ticket_out
from app.api.streams import AfterId, Deltas, LastEventId, Named, Types, event_stream, events_page
from app.clock import new_id
from app.control import reading
from app.control.cancel import cancel
from app.control.decide import decide
from app.control.start import StartRequest, ToExecute
from app.control.waiting import until_rest
from app.dispatch.launch import start_run
from app.domain.errors import Invalid, TooLarge
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.json_values import compact
from app.domain.messages import message_to_json
from app.domain.principals import Principal
from app.domain.runs import RunFilter, RunStatus
from app.events.follow import Scope, follow
from app.transport import cursors
from app.transport.deps import (
    DeskDep,
    PrincipalDep,
    StreamOptionsDep,
    StreamToken,
    WorkerDep,
    stream_reader,
)
from app.transport.sse import FrameShape, stream

MOST_WAIT = 60

router = APIRouter(prefix="/v1/runs", tags=["runs"])
_problems: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "Not here"},
    422: {"model": Problem, "description": "Invalid request"},
}
Wait = Annotated[int | None, Query(ge=0, le=MOST_WAIT, description="Seconds to wait for its rest.")]


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
        409: {"model": Problem, "description": "The thread or the run id is taken"},
        413: {"model": Problem, "description": "Too large"},
        429: {"model": Problem, "description": "Too many runs queue for the thread"},
        **_problems,
    },
)
async def start_a_run(
    body: StartIn,
    request: Request,
    desk: DeskDep,
    worker: WorkerDep,
    principal: PrincipalDep,
    options: StreamOptionsDep,
    prefer: Annotated[str | None, Header(description="`wait=N`: answer when it rests.")] = None,
) -> Response:
    """Start a run. It goes on whether anybody listens or not."""
    start = _start_request(body, desk.limits.message_bytes, request.headers.get("traceparent"))
    wants_stream = "text/event-stream" in request.headers.get("accept", "")
    seconds = _preferred_wait(prefer)
    if not wants_stream:
        started = await start_run(desk, worker, principal, start)
        record = started.record
        rests = seconds is not None and await until_rest(
            desk, principal.tenant, record.thread_id, record.id, seconds
        )
        view = await reading.run(desk, principal, record.id) if rests else record
        return JSONResponse(
            run_out(view).model_dump(mode="json", exclude_none=False),
            status_code=200 if rests else 202,
            headers={"Location": f"/v1/runs/{record.id}"},
        )
    # Listening begins before the run does, so that its first event needs no look into the log.
    subscription = desk.hub.subscribe(principal.tenant, start.thread_id)
    try:
        started = await start_run(desk, worker, principal, start)
    except BaseException:
        subscription.close()
        raise
    record = started.record
    live = isinstance(started, ToExecute)
    if not live:
        subscription.close()
    heard = follow(
        desk.database.hot,
        desk.hub,
        Scope(principal.tenant, record.thread_id, record.id),
        after=record.events_from - 1,
        heartbeat=options.heartbeat,
        subscription=subscription if live else None,
    )
    return stream(
        heard,
        FrameShape(),
        options,
        {
            "Location": f"/v1/runs/{record.id}/events",
            "Content-Location": f"/v1/runs/{record.id}",
        },
    )


@router.get("", responses={400: {"model": Problem, "description": "Bad cursor"}})
async def list_runs(
    desk: DeskDep,
    principal: PrincipalDep,
    thread_id: Uuid | None = None,
    agent_id: str | None = None,
    status: RunStatus | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Page[RunOut]:
    """Runs, newest first. A cursor is good for the filters it came with."""
    wanted = RunFilter(
        thread_id=None if thread_id is None else ThreadId(thread_id),
        agent_id=None if agent_id is None else AgentId(agent_id),
        status=status,
        created_after=created_after,
        created_before=created_before,
    )
    return await page_of_runs(desk, principal, wanted, cursor, limit)


async def page_of_runs(
    desk: DeskDep, principal: Principal, wanted: RunFilter, cursor: str | None, limit: int
) -> Page[RunOut]:
    query = {
        "list": "runs",
        "thread_id": wanted.thread_id,
        "agent_id": wanted.agent_id,
        "status": wanted.status,
        "created_after": wanted.created_after,
        "created_before": wanted.created_before,
    }
    place = cursors.decode(query, cursor)
    found = await reading.run_page(
        desk,
        principal,
        wanted,
        before=None if place is None else (place[0], RunId(place[1])),
        limit=limit + 1,
    )
    shown = found[:limit]
    has_more = len(found) > limit
    return Page[RunOut](
        items=[run_out(record) for record in shown],
        next_cursor=cursors.encode(query, shown[-1].created_at, shown[-1].id) if has_more else None,
        has_more=has_more,
    )


@router.get("/{run_id}", responses=_problems)
async def read_a_run(
    run_id: Uuid,
    desk: DeskDep,
    principal: PrincipalDep,
    wait: Wait = None,
    include: Annotated[str | None, Query(description="`state`: the run's state too.")] = None,
) -> RunOut:
    """A run as it stands; with `?wait=N` as soon as it is done or waits for somebody."""
    view = await reading.run(desk, principal, RunId(run_id))
    if wait:
        record = view.run
        await until_rest(desk, principal.tenant, record.thread_id, record.id, wait)
        view = await reading.run(desk, principal, RunId(run_id))
    return run_out(view, with_state=include == "state")


@router.get(
    "/{run_id}/events",
    response_model=EventsPage,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events, as a page or a stream"},
        204: {"description": "The run is done and nothing comes after the cursor"},
        400: {"model": Problem, "description": "Not a cursor"},
        410: {"model": Problem, "description": "The cursor can't be continued; read the snapshot"},
        **_problems,
    },
)
@router.get("/{run_id}/events/stream", include_in_schema=False)
async def follow_a_run(
    run_id: Uuid,
    request: Request,
    desk: DeskDep,
    options: StreamOptionsDep,
    last_event_id: LastEventId = None,
    after: AfterId = None,
    from_: Annotated[str | None, Query(alias="from", pattern="^(start|now)$")] = None,
    types: Types = None,
    deltas: Deltas = True,
    named: Named = False,
    follow: Annotated[bool, Query(description="Stay open while it waits; end when done.")] = False,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    stream_token: StreamToken = None,
) -> Response:
    """The run's events: with `Accept: text/event-stream` as they happen, otherwise as a page."""
    reader = stream_reader(request, stream_token, run_id=RunId(run_id), thread_id=None)
    record = (await reading.run(desk, reader, RunId(run_id))).run
    scope = Scope(reader.tenant, record.thread_id, record.id, until_done=follow)
    snapshot = f"/v1/runs/{record.id}/snapshot"
    cursor = last_event_id if last_event_id is not None else after
    if "text/event-stream" not in request.headers.get("accept", ""):
        if request.url.path.endswith("/stream") is False:
            return await events_page(desk, scope, cursor, record.events_from - 1, limit, snapshot)
    return await event_stream(
        desk,
        scope,
        cursor=cursor,
        begin=record.events_from - 1,
        from_now=from_ == "now",
        is_done=record.is_done,
        shape=(types, deltas, named),
        options=options,
        snapshot=snapshot,
    )


@router.get("/{run_id}/snapshot", responses=_problems)
async def read_a_snapshot(run_id: Uuid, desk: DeskDep, principal: PrincipalDep) -> SnapshotOut:
    """The run, its messages and what is under way; follow on from `last_event_id`."""
    found = await reading.snapshot(desk, principal, RunId(run_id))
    return SnapshotOut(
        run=run_out(found.view),
        messages=[message_out(entry) for entry in found.messages],
        open_text=found.open_parts.text,
        open_tool_calls=[dict(call) for call in found.open_parts.calls],
        tickets=[ticket_out(ticket) for ticket in found.view.open_tickets],
        last_event_id=found.last_event_id,
    )


@router.post(
    "/{run_id}/decisions",
    responses={
        403: {"model": Problem, "description": "Not yours to decide"},
        409: {"model": Problem, "description": "Answered before, by another decision"},
        410: {"model": Problem, "description": "The ticket has expired or is void"},
        412: {"model": Problem, "description": "The quoted arguments aren't the ticket's"},
        **_problems,
    },
)
async def decide_tickets(
    run_id: Uuid, body: DecisionsIn, desk: DeskDep, principal: PrincipalDep
) -> DecidedOut:
    """Answer tickets: all of the batch or none. Once this is answered, nothing can lose it."""
    decided = await decide(
        desk, principal, RunId(run_id), [decision.to_domain() for decision in body.decisions]
    )
    return DecidedOut(
        results=[decision_result_out(result) for result in decided.results],
        open_tickets=[ticket_out(ticket) for ticket in decided.open_tickets],
        run=run_out(reading.RunView(decided.run, decided.open_tickets)),
    )


@router.post(
    "/{run_id}/cancel",
    response_model=RunOut,
    status_code=202,
    responses={200: {"model": RunOut, "description": "Settled: it is done"}, **_problems},
)
async def cancel_a_run(
    run_id: Uuid,
    desk: DeskDep,
    principal: PrincipalDep,
    response: Response,
    body: CancelIn | None = None,
    wait: Wait = None,
) -> RunOut:
    """Cancel in every status. 200 means that it is settled, 202 that it will be."""
    answer = await cancel(
        desk, principal, RunId(run_id), reason=body.reason if body is not None else None
    )
    run, settled = answer.run, answer.is_settled
    if wait and not settled:
        settled = await until_rest(
            desk, principal.tenant, run.thread_id, run.id, wait, only_done=True
        )
        run = (await reading.run(desk, principal, run.id)).run
    response.status_code = 200 if settled else 202
    return run_out(run)


def _start_request(body: StartIn, message_bytes: int, traceparent: str | None) -> StartRequest:
    messages = tuple(message.to_domain() for message in body.messages)
    for place, message in enumerate(messages):
        if not message.content or all(
            getattr(block, "text", "x") == "" for block in message.content
        ):
            raise Invalid("message_empty", f"messages.{place} has no content.")
        if len(compact(message_to_json(message)).encode()) > message_bytes:
            raise TooLarge(
                "message_too_large", f"messages.{place} is larger than {message_bytes} bytes."
            )
    return StartRequest(
        agent_id=AgentId(body.agent_id),
        thread_id=ThreadId(body.thread_id or new_id()),
        run_id=None if body.run_id is None else RunId(body.run_id),
        messages=messages,
        on_active=body.on_active,
        if_thread_missing=body.if_thread_missing,
        metadata=body.metadata,
        digest=body.fingerprint(),
        traceparent=traceparent,
    )


def _preferred_wait(prefer: str | None) -> int | None:
    found = re.search(r"\bwait=(\d{1,4})\b", prefer or "")
    return None if found is None else min(int(found.group(1)), MOST_WAIT)
