"""Inputs over HTTP: messages for a run that is there, by run and by thread."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from app.api.schemas.common import ListCursor, ListLimit, Page, Problem, Uuid
from app.api.schemas.inputs import (
    InputChange,
    InputsAcceptedOut,
    InputsIn,
    ThreadMessagesIn,
    WaitingInputOut,
    accepted_out,
    waiting_input_out,
)
from app.api.schemas.messages import bounded
from app.control import unread
from app.control.desk import Desk
from app.control.inputs import Accepted, InputRequest, Target, ToRun, ToThread
from app.control.once import Once
from app.dispatch.launch import send_input
from app.dispatch.worker import Worker
from app.domain.idempotency import IdempotencyKey, KeptAnswer
from app.domain.ids import AgentId, InputId, RunId, ThreadId
from app.domain.inputs import InputStatus
from app.domain.principals import Principal
from app.transport import cursors
from app.transport.deps import DeskDep, PrincipalDep, WorkerDep
from app.transport.headers import traceparent
from app.transport.repetitions import KeyDep

router = APIRouter(prefix="/v1")
_problems: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "Not here"},
    409: {"model": Problem, "description": "The run has ended, or is being cancelled"},
    413: {"model": Problem, "description": "Too large"},
    429: {"model": Problem, "description": "Too much waits for the run or the thread"},
}


@router.post("/runs/{run_id}/inputs", status_code=202, responses=_problems, tags=["runs"])
async def send_messages_to_a_run(
    run_id: Uuid,
    body: InputsIn,
    request: Request,
    response: Response,
    desk: DeskDep,
    worker: WorkerDep,
    principal: PrincipalDep,
    key: KeyDep,
) -> InputsAcceptedOut:
    """Steer a run, or queue a new one behind it. What waits for people reads when it goes on."""
    wanted = InputRequest(
        messages=bounded(body.messages, desk.limits.message_bytes),
        mode=body.mode,
        limits=body.wanted_limits(),
        traceparent=traceparent(request),
    )
    target = ToRun(RunId(run_id))
    return await _send(desk, worker, principal, target, wanted, key, response)


@router.post(
    "/threads/{thread_id}/messages", status_code=202, responses=_problems, tags=["threads"]
)
async def send_messages_to_a_thread(
    thread_id: Uuid,
    body: ThreadMessagesIn,
    request: Request,
    response: Response,
    desk: DeskDep,
    worker: WorkerDep,
    principal: PrincipalDep,
    key: KeyDep,
) -> InputsAcceptedOut:
    """Queue a run on a thread, or steer the one that occupies it; where none does, one is started."""
    wanted = InputRequest(
        messages=bounded(body.messages, desk.limits.message_bytes),
        mode=body.mode,
        limits=body.wanted_limits(),
        agent_id=None if body.agent_id is None else AgentId(body.agent_id),
        traceparent=traceparent(request),
    )
    target = ToThread(ThreadId(thread_id))
    return await _send(desk, worker, principal, target, wanted, key, response)


@router.get(
    "/threads/{thread_id}/inputs",
    responses={
        400: {"model": Problem, "description": "Bad cursor"},
        404: {"model": Problem, "description": "Not here"},
    },
    tags=["threads"],
)
async def list_inputs(
    thread_id: Uuid,
    desk: DeskDep,
    principal: PrincipalDep,
    status: Annotated[
        InputStatus,
        Query(description="Still waiting, taken by its run, or left unread at its end."),
    ] = InputStatus.PENDING,
    cursor: ListCursor = None,
    limit: ListLimit = 50,
) -> Page[WaitingInputOut]:
    """Messages that wait for runs of the thread, oldest first."""
    query = {"list": f"inputs of {thread_id}", "status": status.value}
    place = cursors.decode(query, cursor)
    found = await unread.input_page(
        desk,
        principal,
        ThreadId(thread_id),
        status,
        after=None if place is None else (place[0], InputId(place[1])),
        limit=limit + 1,
    )
    return Page[WaitingInputOut].of(
        found,
        limit,
        show=waiting_input_out,
        cursor=lambda waiting: cursors.encode(query, waiting.created_at, waiting.id),
    )


@router.patch(
    "/threads/{thread_id}/inputs/{input_id}",
    responses={
        404: {"model": Problem, "description": "Not here"},
        409: {"model": Problem, "description": "Its run has taken it, or has ended without"},
        412: {"model": Problem, "description": "It was changed meanwhile"},
        413: {"model": Problem, "description": "Too large"},
    },
    tags=["threads"],
)
async def change_an_input(
    thread_id: Uuid,
    input_id: Uuid,
    body: InputChange,
    response: Response,
    desk: DeskDep,
    principal: PrincipalDep,
    if_match: Annotated[
        str, Header(pattern=r'^"\d{1,9}"$', description='The revision that is meant: `"1"`.')
    ],
) -> WaitingInputOut:
    """Change a message that no run has read. It keeps its ids and its place."""
    [message] = bounded([body.message], desk.limits.message_bytes)
    changed = await unread.rewrite(
        desk,
        principal,
        ThreadId(thread_id),
        InputId(input_id),
        message,
        revision=int(if_match.strip('"')),
    )
    response.headers["ETag"] = f'"{changed.revision}"'
    return waiting_input_out(changed)


@router.delete(
    "/threads/{thread_id}/inputs/{input_id}",
    status_code=204,
    responses={
        404: {"model": Problem, "description": "Not here"},
        409: {"model": Problem, "description": "Its run has taken it"},
    },
    tags=["threads"],
)
async def take_an_input_back(
    thread_id: Uuid, input_id: Uuid, desk: DeskDep, principal: PrincipalDep
) -> None:
    """Take back a message that no run has read. A run that was to read nothing else is cancelled."""
    await unread.take_back(desk, principal, ThreadId(thread_id), InputId(input_id))


async def _send(
    desk: Desk,
    worker: Worker | None,
    principal: Principal,
    target: Target,
    wanted: InputRequest,
    key: IdempotencyKey | None,
    response: Response,
) -> InputsAcceptedOut:
    once = None if key is None else Once(key, _as_accepted)
    accepted = await send_input(desk, worker, principal, target, wanted, once)
    response.headers["Location"] = _place(accepted)
    return accepted_out(accepted)


def _as_accepted(accepted: Accepted) -> KeptAnswer:
    return KeptAnswer(202, accepted_out(accepted).model_dump_json(), _place(accepted))


def _place(accepted: Accepted) -> str:
    return f"/v1/runs/{accepted.run.id}"
