"""Runs over HTTP: list, read, follow, decide, cancel."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from app.api.event_streams import StreamQuery, StreamSource, read_events
from app.api.runs.listing import RunQuery, page_of_runs
from app.api.schemas.common import Page, Uuid
from app.api.schemas.messages import message_out
from app.api.schemas.runs import (
    CancelIn,
    DecidedOut,
    EventsPage,
    RunOut,
    SnapshotHead,
    SnapshotOut,
    run_out,
)
from app.api.schemas.tickets import DecisionsIn, decision_result_out, ticket_out
from app.commands.idempotency import IdempotentCommand
from app.commands.runs.cancel import CancelAnswer, cancel
from app.commands.tickets.decide import Decided
from app.domain.errors import AlreadyAnswered
from app.domain.idempotency import KeptAnswer
from app.domain.ids import RunId, ThreadId
from app.events.follow import StreamScope
from app.http.access import AuthorizedRoute, MayDecide, MayFollowRun, MayRead, MayWrite
from app.http.deps import ContextDep, LongPollsDep, StreamOptionsDep, WorkerDep
from app.http.error_codes import error_responses
from app.http.headers import MAX_WAIT_SECONDS, tagged
from app.http.idempotency_key import REPLAYED_HEADER, KeyDep
from app.http.sliced_json import sliced_json
from app.queries import records
from app.queries.wait import wait_until_idle
from app.workers.direct_start import decide_and_execute

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/runs", tags=["runs"])
_of_a_run = error_responses("run_not_found")
Wait = Annotated[
    int | None, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for its rest.")
]


@router.get("")
async def list_runs(
    ctx: ContextDep,
    principal: MayRead,
    query: Annotated[RunQuery, Depends()],
    thread_id: Uuid | None = None,
) -> Page[RunOut]:
    """Runs, newest first. `metadata.KEY=TEXT` picks those that were started with it."""
    thread = None if thread_id is None else ThreadId(thread_id)
    return await page_of_runs(ctx, principal, query, thread)


@router.get(
    "/{run_id}",
    response_model=RunOut,
    responses={304: {"description": "Still what `If-None-Match` names"}, **_of_a_run},
)
async def read_a_run(
    run_id: Uuid,
    request: Request,
    ctx: ContextDep,
    principal: MayRead,
    polls: LongPollsDep,
    wait: Wait = None,
    include: Annotated[
        Literal["state"] | None, Query(description="`state`: the run's state too.")
    ] = None,
) -> Response:
    """A run as it stands; with `?wait=N` as soon as it is done or waits for somebody."""
    view = await records.read_run(ctx, principal, RunId(run_id))
    if wait:
        record = view.run
        await polls.hold(wait_until_idle(ctx, principal.tenant, record.thread_id, record.id, wait))
        view = await records.read_run(ctx, principal, RunId(run_id))
    body = run_out(view, with_state=include == "state").model_dump_json().encode()
    return tagged(request, body)


@router.get(
    "/{run_id}/events",
    response_model=EventsPage,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events, as a page or a stream"},
        204: {"description": "The run is done and nothing comes after the cursor"},
        **_of_a_run,
    },
)
@router.get("/{run_id}/events/stream", include_in_schema=False)
async def follow_a_run(
    run_id: Uuid,
    request: Request,
    ctx: ContextDep,
    reader: MayFollowRun,
    options: StreamOptionsDep,
    wish: Annotated[StreamQuery, Depends()],
    follow: Annotated[bool, Query(description="Stay open while it waits; end when done.")] = False,
) -> Response:
    """The run's events: with `Accept: text/event-stream` as they happen, otherwise as a page."""
    record = (await records.read_run(ctx, reader, RunId(run_id))).run
    readable = StreamSource(
        StreamScope(reader.tenant, record.thread_id, record.id, until_done=follow),
        before_first=record.events_from - 1,
        is_done=record.is_done,
        snapshot=f"/v1/runs/{record.id}/snapshot",
    )
    return await read_events(request, ctx, readable, wish, options)


@router.get("/{run_id}/snapshot", response_model=SnapshotOut, responses=_of_a_run)
async def read_a_snapshot(run_id: Uuid, ctx: ContextDep, principal: MayRead) -> Response:
    """The run, its messages and what is under way; follow on from `last_event_id`."""
    found = await records.read_snapshot(ctx, principal, RunId(run_id))
    without_messages = SnapshotHead(
        run=run_out(found.view),
        open_text=found.open_parts.text,
        open_tool_calls=[dict(call) for call in found.open_parts.calls],
        tickets=[ticket_out(ticket) for ticket in found.view.open_tickets],
        last_event_id=found.last_event_id,
    )
    return sliced_json(without_messages, "messages", found.messages, message_out)


@router.post(
    "/{run_id}/decisions",
    responses=error_responses(
        "run_not_found",
        "ticket_not_found",
        "ticket_already_decided",
        "ticket_expired",
        "ticket_void",
        "ticket_repeated",
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
) -> DecidedOut:
    """Answer tickets: all of the batch or none. Once this is answered, nothing can lose it."""
    answers = [decision.to_domain() for decision in body.decisions]
    once = None if key is None else IdempotentCommand(key, _as_decided)
    return _decided_out(
        await decide_and_execute(ctx, worker, principal, RunId(run_id), answers, once)
    )


def _as_decided(decided: Decided) -> KeptAnswer:
    return KeptAnswer(200, _decided_out(decided).model_dump_json())


def _decided_out(decided: Decided) -> DecidedOut:
    return DecidedOut(
        results=[decision_result_out(result) for result in decided.results],
        open_tickets=[ticket_out(ticket) for ticket in decided.open_tickets],
        run=run_out(records.RunView(decided.run, decided.open_tickets)),
    )


@router.post(
    "/{run_id}/cancel",
    response_model=RunOut,
    status_code=202,
    responses={
        200: {"model": RunOut, "description": "Settled: it is done"},
        **_of_a_run,
    },
)
async def cancel_a_run(
    run_id: Uuid,
    ctx: ContextDep,
    principal: MayWrite,
    polls: LongPollsDep,
    response: Response,
    key: KeyDep,
    body: CancelIn | None = None,
    wait: Wait = None,
) -> RunOut:
    """Cancel in every status. 200 means that it is settled, 202 that it will be."""
    reason = None if body is None else body.reason
    once = None if key is None else IdempotentCommand(key, _as_cancelled)
    try:
        answer = await cancel(ctx, principal, RunId(run_id), reason=reason, once=once)
    except AlreadyAnswered as before:
        if not wait or before.answer.status == 200:
            raise
        found = (await records.read_view(ctx, principal.tenant, RunId(run_id))).run
        answer = CancelAnswer(found, found.is_done)
        response.headers.update(REPLAYED_HEADER)
    run, settled = answer.run, answer.is_settled
    if wait and not settled:
        settled = await polls.hold(
            wait_until_idle(ctx, principal.tenant, run.thread_id, run.id, wait, only_done=True)
        )
        run = (await records.read_view(ctx, principal.tenant, run.id)).run
    response.status_code = 200 if settled else 202
    return run_out(run)


def _as_cancelled(answer: CancelAnswer) -> KeptAnswer:
    return KeptAnswer(200 if answer.is_settled else 202, run_out(answer.run).model_dump_json())
