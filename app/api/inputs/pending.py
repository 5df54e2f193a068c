"""What waits for the runs of a thread, over HTTP: listed, changed, taken back, put in another order.

Whoever changes something says which revision was seen; what a run has read can't be changed any more.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from app.api.schemas.common import ListCursor, ListLimit, Page, Uuid
from app.api.schemas.inputs import (
    InputChangeIn,
    OrderOut,
    PendingInputOut,
    ReorderIn,
    order_out,
    pending_input_out,
)
from app.api.schemas.messages import bounded
from app.commands.idempotency import IdempotentCommand
from app.commands.inputs import pending_inputs
from app.commands.inputs.pending_inputs import InputVersion
from app.commands.inputs.reorder import reorder
from app.domain.idempotency import KeptAnswer
from app.domain.ids import InputId, ThreadId
from app.domain.threads.inputs import Input, InputStatus
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead, MayWrite
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.http.idempotency_key import KeyDep

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/threads/{thread_id}", tags=["threads"])
_OF_AN_INPUT = ("thread_not_found", "input_not_found")
_OF_ONE_UNREAD = (*_OF_AN_INPUT, "already_consumed", "revision_mismatch")
_OF_A_CHANGE = (*_OF_ONE_UNREAD, "input_retracted")
_REVISION = r'^"\d{1,9}"$'


@router.get(
    "/inputs",
    responses=error_responses("thread_not_found"),
)
async def list_inputs(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayRead,
    status: Annotated[
        InputStatus,
        Query(description="Still waiting, read by its run, or left unread at its end."),
    ] = InputStatus.PENDING,
    cursor: ListCursor = None,
    limit: ListLimit = 50,
) -> Page[PendingInputOut]:
    """Messages that wait for runs of the thread, in the order in which they will be read; with another
    status those that do no more, oldest first."""
    query = {"list": f"inputs of {thread_id}", "status": status.value}
    thread = ThreadId(thread_id)
    if status is InputStatus.PENDING:
        after = cursors.decode_pair(query, cursor) or (0, 0)
        waiting = await pending_inputs.list_pending_inputs(
            ctx, principal, thread, after=after, limit=limit
        )
        return Page[PendingInputOut].of(
            waiting,
            show=pending_input_out,
            cursor=lambda each: cursors.encode_pair(query, (each.place, each.position)),
        )
    place = cursors.decode(query, cursor)
    past = await pending_inputs.list_past_inputs(
        ctx,
        principal,
        thread,
        status,
        after=None if place is None else (place[0], InputId(place[1])),
        limit=limit,
    )
    return Page[PendingInputOut].of(
        past,
        show=pending_input_out,
        cursor=lambda each: cursors.encode(query, each.created_at, each.id),
    )


@router.get("/inputs/{input_id}", responses=error_responses(*_OF_AN_INPUT))
async def read_an_input(
    thread_id: Uuid, input_id: Uuid, response: Response, ctx: ContextDep, principal: MayRead
) -> PendingInputOut:
    """A message that was sent, whatever has become of it: `consumed`, with its place in the log, means
    that its run has read it."""
    found = await pending_inputs.read_input(ctx, principal, ThreadId(thread_id), InputId(input_id))
    return _tagged(response, found)


@router.patch(
    "/inputs/{input_id}",
    responses=error_responses(*_OF_A_CHANGE, "message_empty", "message_too_large"),
)
async def change_an_input(
    thread_id: Uuid,
    input_id: Uuid,
    body: InputChangeIn,
    response: Response,
    ctx: ContextDep,
    principal: MayWrite,
    key: KeyDep,
    if_match: Annotated[
        str, Header(pattern=_REVISION, description='The revision that is meant: `"1"`.')
    ],
) -> PendingInputOut:
    """Change a message that no run has read. It keeps its ids and its place."""
    [message] = bounded([body.message], ctx.limits.message_bytes)
    changed = await pending_inputs.change_input(
        ctx,
        principal,
        ThreadId(thread_id),
        InputVersion(InputId(input_id), _revision(if_match)),
        message,
        once=None if key is None else IdempotentCommand(key, _as_changed),
    )
    return _tagged(response, changed)


@router.delete("/inputs/{input_id}", status_code=204, responses=error_responses(*_OF_ONE_UNREAD))
async def take_an_input_back(
    thread_id: Uuid,
    input_id: Uuid,
    ctx: ContextDep,
    principal: MayWrite,
    key: KeyDep,
    if_match: Annotated[
        str | None,
        Header(pattern=_REVISION, description="Only if it still is at this revision."),
    ] = None,
) -> None:
    """Take back a message that no run has read. A run that was to read nothing else is cancelled."""
    await pending_inputs.retract_input(
        ctx,
        principal,
        ThreadId(thread_id),
        InputVersion(InputId(input_id), None if if_match is None else _revision(if_match)),
        once=None if key is None else IdempotentCommand(key, _as_taken_back),
    )


@router.post(
    "/inputs:reorder",
    responses=error_responses(*_OF_A_CHANGE, "input_repeated", "order_impossible"),
)
async def reorder_inputs(
    thread_id: Uuid, body: ReorderIn, ctx: ContextDep, principal: MayWrite, key: KeyDep
) -> OrderOut:
    """Put messages that no run has read in another order, and with them the runs that will."""
    wanted = [InputVersion(InputId(each.id), each.revision) for each in body.inputs]
    once = None if key is None else IdempotentCommand(key, _as_reordered)
    return order_out(await reorder(ctx, principal, ThreadId(thread_id), wanted, once=once))


def _revision(if_match: str) -> int:
    return int(if_match.strip('"'))


def _tagged(response: Response, found: Input) -> PendingInputOut:
    response.headers["ETag"] = f'"{found.revision}"'
    return pending_input_out(found)


def _as_changed(changed: Input) -> KeptAnswer:
    return KeptAnswer(200, pending_input_out(changed).model_dump_json())


def _as_taken_back(_: None) -> KeptAnswer:
    return KeptAnswer(204, "")


def _as_reordered(reordered: Any) -> KeptAnswer:
    return KeptAnswer(200, order_out(reordered).model_dump_json())
