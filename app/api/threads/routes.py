"""Threads over HTTP: made, read, followed, removed."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from app.api.event_streams import StreamQuery, StreamSource, read_events
from app.api.runs.listing import Metadata, RunQuery, page_of_runs
from app.api.schemas.common import ListCursor, ListLimit, Page, Seq, Str, Uuid
from app.api.schemas.messages import MessageOut, message_out
from app.api.schemas.runs import EventsPage, RunOut
from app.api.schemas.threads import ThreadChange, ThreadIn, ThreadOut, thread_out
from app.clock import new_id
from app.commands.idempotency import IdempotentCommand
from app.commands.threads import threads
from app.domain.idempotency import KeptAnswer
from app.domain.ids import RunId, ThreadId
from app.domain.threads.messages import Visibility
from app.domain.threads.threads import Thread
from app.events.follow import StreamScope
from app.http import cursors
from app.http.access import AuthorizedRoute, MayFollowThread, MayRead, MayWrite
from app.http.deps import ContextDep, StreamOptionsDep
from app.http.error_codes import error_responses
from app.http.idempotency_key import KeyDep
from app.queries import records

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/threads", tags=["threads"])
_of_a_thread = error_responses("thread_not_found")


@router.post(
    "",
    status_code=201,
    responses=error_responses("thread_exists", "thread_not_found"),
)
async def make_a_thread(
    body: ThreadIn, ctx: ContextDep, principal: MayWrite, response: Response, key: KeyDep
) -> ThreadOut:
    """An empty thread. Starting a run makes one too."""
    parent = body.parent_thread_id
    thread = await threads.create_thread(
        ctx,
        principal,
        ThreadId(body.thread_id or new_id()),
        title=body.title,
        resource_id=body.resource_id,
        parent_thread_id=None if parent is None else ThreadId(parent),
        metadata=body.metadata,
        once=None if key is None else IdempotentCommand(key, thread_created),
    )
    response.headers["Location"] = thread_location(thread)
    return thread_out(thread)


def thread_created(thread: Thread) -> KeptAnswer:
    """What the making of a thread is told, and each of its repetitions."""
    return KeptAnswer(201, thread_out(thread).model_dump_json(), thread_location(thread))


def thread_location(thread: Thread) -> str:
    return f"/v1/threads/{thread.id}"


@router.get("")
async def list_threads(
    ctx: ContextDep,
    principal: MayRead,
    metadata: Metadata,
    resource_id: Annotated[Str | None, Query(max_length=500)] = None,
    parent_thread_id: Uuid | None = None,
    cursor: ListCursor = None,
    limit: ListLimit = 50,
) -> Page[ThreadOut]:
    """Threads, newest first. `metadata.KEY=TEXT` picks those that have it in theirs."""
    parent = None if parent_thread_id is None else ThreadId(parent_thread_id)
    query = {
        "list": "threads",
        "resource_id": resource_id,
        "parent_thread_id": parent,
        "metadata": metadata,
    }
    place = cursors.decode(query, cursor)
    found = await records.list_threads(
        ctx,
        principal,
        resource_id=resource_id,
        parent_thread_id=parent,
        metadata=metadata,
        before=None if place is None else (place[0], ThreadId(place[1])),
        limit=limit,
    )
    return Page[ThreadOut].of(
        found,
        show=thread_out,
        cursor=lambda thread: cursors.encode(query, thread.created_at, thread.id),
    )


@router.get("/{thread_id}", responses=_of_a_thread)
async def read_a_thread(thread_id: Uuid, ctx: ContextDep, principal: MayRead) -> ThreadOut:
    return thread_out(await records.read_thread(ctx, principal, ThreadId(thread_id)))


@router.patch("/{thread_id}", responses=_of_a_thread)
async def change_a_thread(
    thread_id: Uuid, body: ThreadChange, ctx: ContextDep, principal: MayWrite
) -> ThreadOut:
    """Change what is named; null clears a title or a resource."""
    changes = {name: getattr(body, name) for name in body.model_fields_set}
    if changes.get("metadata", {}) is None:
        changes["metadata"] = {}
    return thread_out(await threads.change_thread(ctx, principal, ThreadId(thread_id), changes))


@router.delete(
    "/{thread_id}",
    status_code=204,
    responses=error_responses("thread_not_found", "has_active_run", "has_children"),
)
async def remove_a_thread(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayWrite,
    children: Annotated[
        threads.ChildThreads,
        Query(description="Threads that have it as their parent: refuse, let them be, or all go."),
    ] = threads.ChildThreads.REJECT,
    child_strategy: Annotated[threads.ChildThreads | None, Query(include_in_schema=False)] = None,
) -> None:
    """Remove it with its runs, messages and events; refused while a run occupies one that goes."""
    await threads.delete_thread(ctx, principal, ThreadId(thread_id), child_strategy or children)


@router.get("/{thread_id}/messages", responses=_of_a_thread)
async def read_messages(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayRead,
    after: Annotated[Seq | None, Query(description="Only messages behind this seq.")] = None,
    before: Annotated[Seq | None, Query(description="Only messages before this seq.")] = None,
    order: Literal["asc", "desc"] = "asc",
    run_id: Uuid | None = None,
    visibility: Literal["all", "internal", "any"] = "all",
    include: Annotated[
        Literal["rolled_back"] | None,
        Query(description="`rolled_back`: what doesn't count any more, too."),
    ] = None,
    cursor: ListCursor = None,
    limit: ListLimit = 50,
) -> Page[MessageOut]:
    """The log, by sequence; internal messages, and those that were rolled back, only when asked for."""
    query = {
        "list": f"messages of {thread_id}",
        "after": after,
        "before": before,
        "order": order,
        "run_id": run_id,
        "visibility": visibility,
        "include": include,
    }
    seq = cursors.decode_seq(query, cursor)
    if seq is not None:
        after, before = (seq, before) if order == "asc" else (after, seq)
    found = await records.list_messages(
        ctx,
        principal,
        ThreadId(thread_id),
        after=after,
        before=before,
        descending=order == "desc",
        run_id=None if run_id is None else RunId(run_id),
        visibility=None if visibility == "any" else Visibility(visibility),
        limit=limit,
        with_rolled_back=include == "rolled_back",
    )
    return Page[MessageOut].of(
        found,
        show=message_out,
        cursor=lambda entry: cursors.encode_seq(query, entry.seq),
    )


@router.get("/{thread_id}/runs", responses=_of_a_thread)
async def list_runs_of_a_thread(
    thread_id: Uuid, ctx: ContextDep, principal: MayRead, query: Annotated[RunQuery, Depends()]
) -> Page[RunOut]:
    """The thread's runs, newest first. `metadata.KEY=TEXT` picks those that were started with it."""
    await records.read_thread(ctx, principal, ThreadId(thread_id))
    return await page_of_runs(ctx, principal, query, ThreadId(thread_id))


@router.get(
    "/{thread_id}/events",
    response_model=EventsPage,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events, as a page or a stream"},
        **_of_a_thread,
    },
)
async def follow_a_thread(
    thread_id: Uuid,
    request: Request,
    ctx: ContextDep,
    reader: MayFollowThread,
    options: StreamOptionsDep,
    wish: Annotated[StreamQuery, Depends()],
) -> Response:
    """All events of the thread's runs, also of runs that somebody else starts; stays open."""
    await records.read_thread(ctx, reader, ThreadId(thread_id))
    readable = StreamSource(
        StreamScope(reader.tenant, ThreadId(thread_id)),
        before_first=0,
        is_done=False,
        snapshot=f"/v1/threads/{thread_id}/messages",
    )
    return await read_events(request, ctx, readable, wish, options)
