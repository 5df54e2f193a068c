"""Routes of pending inputs: list, get, change and retract.

A change names the revision that the client has seen. An input that a run has read can't be changed.
"""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from app.api.lists import ListedAscending
from app.api.schemas.common import Page, Uuid
from app.api.schemas.inputs import (
    InputChangeIn,
    PendingInputOut,
)
from app.api.schemas.messages import bounded
from app.commands.idempotency import once_for
from app.commands.inputs import pending_inputs
from app.commands.inputs.pending_inputs import InputVersion
from app.domain.idempotency import StoredResponse
from app.domain.ids import InputId, ThreadId
from app.domain.threads.inputs import Input, InputStatus
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead, MayWrite
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.http.idempotency_key import KeyDep

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/threads/{thread_id}", tags=["inputs"])
_OF_INPUT = ("thread_not_found", "input_not_found")
_OF_PENDING_INPUT = (*_OF_INPUT, "already_consumed", "revision_mismatch")
_OF_CHANGE = (*_OF_PENDING_INPUT, "input_retracted")
_REVISION = r'^"\d{1,9}"$'


@router.get(
    "/inputs",
    responses=error_responses("thread_not_found"),
)
async def list_inputs(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayRead,
    paging: ListedAscending,
    status: Annotated[
        InputStatus,
        Query(description="`pending`, `consumed` or `retracted`."),
    ] = InputStatus.PENDING,
) -> Page[PendingInputOut]:
    """List a thread's inputs. Pending ones are in the order in which they will be read, others oldest
    first."""
    query = paging.of(list=f"inputs of {thread_id}", status=status.value)
    thread = ThreadId(thread_id)
    if status is InputStatus.PENDING:
        waiting = await pending_inputs.list_pending_inputs(ctx, principal, thread, query.by_pair())
        return Page[PendingInputOut].of(
            waiting,
            show=PendingInputOut.model_validate,
            cursor=lambda each: cursors.encode_pair(query.name, (each.run_order, each.position)),
        )
    past = await pending_inputs.list_past_inputs(
        ctx,
        principal,
        thread,
        status,
        query.by_creation(),
    )
    return Page[PendingInputOut].of(
        past,
        show=PendingInputOut.model_validate,
        cursor=lambda each: cursors.encode(query.name, each.created_at, each.id),
    )


@router.get("/inputs/{input_id}", responses=error_responses(*_OF_INPUT))
async def get_input(
    thread_id: Uuid, input_id: Uuid, response: Response, ctx: ContextDep, principal: MayRead
) -> PendingInputOut:
    """Get an input of any status."""
    found = await pending_inputs.read_input(ctx, principal, ThreadId(thread_id), InputId(input_id))
    return _tagged(response, found)


@router.patch(
    "/inputs/{input_id}",
    responses=error_responses(
        *_OF_CHANGE,
        "message_empty",
        "message_too_large",
        "file_not_found",
        "files_unavailable",
        "media_type_mismatch",
    ),
)
async def change_input(
    thread_id: Uuid,
    input_id: Uuid,
    body: InputChangeIn,
    response: Response,
    ctx: ContextDep,
    principal: MayWrite,
    key: KeyDep,
    if_match: Annotated[
        str, Header(pattern=_REVISION, description='The revision to change, such as `"1"`.')
    ],
) -> PendingInputOut:
    """Replace the message of a pending input. Its ids and its position stay."""
    [message] = bounded([body.message], ctx.limits.message_bytes)
    changed = await pending_inputs.change_input(
        ctx,
        principal,
        ThreadId(thread_id),
        InputVersion(InputId(input_id), _revision(if_match)),
        message,
        once=once_for(key, _as_changed),
    )
    return _tagged(response, changed)


@router.delete("/inputs/{input_id}", status_code=204, responses=error_responses(*_OF_PENDING_INPUT))
async def retract_input(
    thread_id: Uuid,
    input_id: Uuid,
    ctx: ContextDep,
    principal: MayWrite,
    key: KeyDep,
    if_match: Annotated[
        str | None,
        Header(pattern=_REVISION, description="Retract the input only if it has this revision."),
    ] = None,
) -> None:
    """Retract a pending input: no run reads it, also no retry. It is listed as `retracted`. A queued run that has
    no other input is cancelled."""
    await pending_inputs.retract_input(
        ctx,
        principal,
        ThreadId(thread_id),
        InputVersion(InputId(input_id), None if if_match is None else _revision(if_match)),
        once=once_for(key, _as_retracted),
    )


def _revision(if_match: str) -> int:
    return int(if_match.strip('"'))


def _tagged(response: Response, found: Input) -> PendingInputOut:
    response.headers["ETag"] = f'"{found.revision}"'
    return PendingInputOut.model_validate(found)


def _as_changed(changed: Input) -> StoredResponse:
    return StoredResponse(200, PendingInputOut.model_validate(changed).model_dump_json())


def _as_retracted(_: None) -> StoredResponse:
    return StoredResponse(204, "")
