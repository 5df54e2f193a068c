"""Routes of runs: list, get, events, snapshot, decisions."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from app.api.event_streams import StreamQuery, StreamSource, read_events
from app.api.included import Included, IncludeDep, ReadIncludeDep
from app.api.runs.listing import RunQuery, page_of_runs
from app.api.runs.waiting import Follow, WaitDep, wait_for
from app.api.schemas.common import Page, Seq, Uuid
from app.api.schemas.messages import message_out
from app.api.schemas.runs.actions import DecidedOut
from app.api.schemas.runs.run import RunOut, run_out
from app.api.schemas.runs.snapshot import EventsPage, SnapshotHead, SnapshotOut
from app.api.schemas.thread_names import ThreadQuery
from app.api.schemas.tickets import DecisionsIn, TicketOut, decision_result_out
from app.api.snapshots import DEFAULT_MESSAGES_LIMIT, MessagesLimit, open_output
from app.commands.idempotency import once_for
from app.commands.tickets.decide import Decided
from app.domain.errors import NotFound
from app.domain.idempotency import StoredResponse
from app.domain.ids import RunId
from app.events.follow import StreamScope, read_one
from app.http.access import AuthorizedRoute, MayDecide, MayFollowRun, MayRead
from app.http.deps import ContextDep, LongPollsDep, StreamOptionsDep, WorkerDep
from app.http.error_codes import error_responses
from app.http.headers import tagged
from app.http.idempotency_key import KeyDep
from app.http.query_params import in_event_loop
from app.http.sliced_json import sliced_json
from app.queries import records
from app.queries.snapshots import read_run_snapshot
from app.queries.usage import with_usage
from app.workers.direct_start import decide_and_execute

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])
_of_a_run = error_responses("run_not_found")


@router.get("")
async def list_runs(
    ctx: ContextDep,
    principal: MayRead,
    query: Annotated[RunQuery, in_event_loop(RunQuery)],
    thread: Annotated[ThreadQuery, in_event_loop(ThreadQuery)],
    included: ReadIncludeDep,
) -> Page[RunOut]:
    """List runs, by default the newest first. `metadata.KEY=TEXT` filters by metadata."""
    return await page_of_runs(ctx, principal, query, included, thread.thread_in(principal.tenant))


@router.get(
    "/{run_id}",
    response_model=RunOut,
    responses={304: {"description": "Not changed since the ETag in `If-None-Match`"}, **_of_a_run},
)
async def get_run(
    run_id: Uuid,
    request: Request,
    ctx: ContextDep,
    principal: MayRead,
    polls: LongPollsDep,
    wait: WaitDep,
    included: ReadIncludeDep,
    follow: Follow = False,
) -> Response:
    """Get a run. With `wait`, wait until it is done or needs a decision."""
    view = await records.read_run(ctx, principal, RunId(run_id))
    if wait.seconds:
        await wait_for(ctx, principal.tenant, polls, [view.run], wait, until_done=follow)
        view = await records.read_run(ctx, principal, RunId(run_id))
    if included.usage:
        [view] = await with_usage(ctx, principal, [view])
    body = run_out(view, included).model_dump_json().encode()
    response = tagged(request, body)
    response.headers.update(wait.headers)
    return response


@router.get(
    "/{run_id}/events",
    response_model=EventsPage,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events, as a page or a stream"},
        204: {"description": "The run is done and has no events after the cursor"},
        **_of_a_run,
    },
)
async def list_run_events(
    run_id: Uuid,
    request: Request,
    ctx: ContextDep,
    reader: MayFollowRun,
    options: StreamOptionsDep,
    query: Annotated[StreamQuery, in_event_loop(StreamQuery)],
    included: IncludeDep,
    follow: Follow = False,
) -> Response:
    """The events of a run: as a stream with `Accept: text/event-stream`, else as a page."""
    run = await records.read_run_stream(ctx, reader, RunId(run_id))
    source = StreamSource(
        StreamScope(reader.tenant, run.thread_id, RunId(run_id), until_done=follow),
        before_first=run.events_from - 1,
        is_done=run.is_done,
        snapshot=f"/v1/runs/{run_id}/snapshot",
    )
    return await read_events(request, ctx, source, query, included, options)


@router.get(
    "/{run_id}/events/{seq}",
    response_model=dict[str, Any],
    responses=error_responses("run_not_found", "event_not_found"),
)
async def get_run_event(
    run_id: Uuid,
    seq: Annotated[Seq, Path(description="Number of the event.")],
    ctx: ContextDep,
    principal: MayRead,
    included: IncludeDep,
) -> Response:
    """Get one event of a run, whole."""
    record = (await records.read_run(ctx, principal, RunId(run_id))).run
    scope = StreamScope(principal.tenant, record.thread_id, record.id)
    frame = await read_one(ctx.database.pool, scope, seq)
    if frame is None:
        raise NotFound("event_not_found", f"Run {run_id} has no event {seq}, or it was removed.")
    shown = frame.with_trace if included.trace else frame
    return Response(shown.json, media_type="application/json")


@router.get("/{run_id}/snapshot", response_model=SnapshotOut, responses=_of_a_run)
async def get_run_snapshot(
    run_id: Uuid,
    ctx: ContextDep,
    reader: MayFollowRun,
    included: ReadIncludeDep,
    messages_limit: MessagesLimit = DEFAULT_MESSAGES_LIMIT,
) -> Response:
    """Get the run, its newest messages and its unfinished output. Follow its events after `last_event_id`. A
    stream token of the run is enough."""
    found = await read_run_snapshot(ctx, reader, RunId(run_id), messages_limit)
    view = found.view
    if included.usage:
        [view] = await with_usage(ctx, reader, [view])
    without_messages = SnapshotHead(run=run_out(view, included), **open_output(found))
    return sliced_json(without_messages, "messages", found.messages, message_out)


@router.post(
    "/{run_id}/decisions",
    response_model=DecidedOut,
    responses=error_responses(
        "run_not_found",
        "ticket_not_found",
        "ticket_already_decided",
        "ticket_expired",
        "ticket_void",
        "ticket_repeated",
        "tickets_of_several_runs",
        "approver_not_allowed",
        "already_voted",
        "decision_id_conflict",
        "args_digest_mismatch",
        "action_not_allowed",
        "arguments_invalid",
        "response_schema_violation",
        "remember_not_allowed",
        "agent_version_unavailable",
    ),
)
async def decide_tickets(
    run_id: Uuid,
    body: DecisionsIn,
    ctx: ContextDep,
    worker: WorkerDep,
    principal: MayDecide,
    key: KeyDep,
    included: IncludeDep,
) -> Response:
    """Decide tickets of a run, all of the batch or none. After 200 the decisions are durable."""
    answers = [decision.to_domain() for decision in body.decisions]
    once = once_for(key, partial(_as_decided, included))
    decided = await decide_and_execute(ctx, worker, principal, RunId(run_id), answers, once)
    return Response(
        _decided_out(included, decided).model_dump_json(), media_type="application/json"
    )


def _as_decided(included: Included, decided: Decided) -> StoredResponse:
    return StoredResponse(200, _decided_out(included, decided).model_dump_json())


def _decided_out(included: Included, decided: Decided) -> DecidedOut:
    return DecidedOut(
        results=[decision_result_out(result) for result in decided.results],
        open_tickets=[TicketOut.model_validate(ticket) for ticket in decided.open_tickets],
        run=run_out(records.RunView(decided.run, decided.open_tickets), included),
    )
