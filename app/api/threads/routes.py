"""Routes of threads: create, list, get, change, delete and follow."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from msgspec.structs import asdict

from app.api.event_streams import StreamQuery, StreamSource, read_events
from app.api.included import IncludeDep, ReadIncludeDep
from app.api.lists import Listed, ListedAscending
from app.api.runs.listing import Metadata, RunQuery, page_of_runs
from app.api.schemas.common import Page, Seq, Str, Uuid
from app.api.schemas.messages import MessageOut, message_out
from app.api.schemas.runs.run import RunOut, run_out
from app.api.schemas.runs.snapshot import EventsPage
from app.api.schemas.thread_names import ThreadKey
from app.api.schemas.threads import (
    ListedThreadOut,
    ThreadChange,
    ThreadIn,
    ThreadOut,
    ThreadSnapshotHead,
    ThreadSnapshotOut,
    listed_thread_out,
)
from app.api.snapshots import DEFAULT_MESSAGES_LIMIT, MessagesLimit, open_output
from app.clock import new_id
from app.commands.idempotency import once_for
from app.commands.threads import threads
from app.domain.idempotency import StoredResponse
from app.domain.ids import RunId, ThreadId
from app.domain.threads.messages import MessageFilter, Visibility
from app.domain.threads.threads import ListedThread, Thread, ThreadFilter, ThreadSort
from app.events.follow import StreamScope
from app.http import cursors
from app.http.access import AuthorizedRoute, MayFollowThread, MayRead, MayWrite
from app.http.deps import ContextDep, StreamOptionsDep
from app.http.error_codes import error_responses
from app.http.idempotency_key import KeyDep
from app.http.query_params import in_event_loop, listed_names
from app.http.sliced_json import sliced_json
from app.queries import records
from app.queries.snapshots import read_thread_snapshot
from app.queries.usage import with_usage

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/threads", tags=["threads"])
_PREVIEWS = ("last_message", "first_message")
_INCLUDED = ("rolled_back", "provider_data")
_of_a_thread = error_responses("thread_not_found")


@router.post(
    "",
    status_code=201,
    responses=error_responses("thread_exists", "thread_not_found"),
)
async def create_thread(
    body: ThreadIn, ctx: ContextDep, principal: MayWrite, response: Response, key: KeyDep
) -> ThreadOut:
    """Create an empty thread. Starting a run creates one, too."""
    thread = await threads.create_thread(
        ctx,
        principal,
        body.thread_in(principal.tenant) or ThreadId(new_id()),
        key=body.thread_key,
        title=body.title,
        resource_id=body.resource_id,
        parent_thread_id=body.parent_in(principal.tenant),
        metadata=body.metadata,
        once=once_for(key, thread_created),
    )
    response.headers["Location"] = thread_location(thread)
    return ThreadOut.model_validate(thread)


def thread_created(thread: Thread) -> StoredResponse:
    """The response to a creation, which is stored for repetitions."""
    return StoredResponse(
        201, ThreadOut.model_validate(thread).model_dump_json(), thread_location(thread)
    )


def thread_location(thread: Thread) -> str:
    return f"/v1/threads/{thread.id}"


@router.get("")
async def list_threads(
    ctx: ContextDep,
    principal: MayRead,
    metadata: Metadata,
    paging: Listed,
    key: Annotated[
        ThreadKey | None, Query(description="Only the thread with this `thread_key`.")
    ] = None,
    title: Annotated[
        Str | None,
        Query(
            max_length=200,
            description="Only threads whose title has words that begin with each of these words.",
        ),
    ] = None,
    sort: Annotated[
        ThreadSort,
        Query(
            description="What `order` is about. With `last_run_at`, threads without a run are left out."
        ),
    ] = ThreadSort.CREATED,
    include: Annotated[
        Str | None,
        Query(
            max_length=100,
            description="What to show in addition, separated by commas. `last_message`: the beginning of the newest "
            "message. `first_message`: the beginning of the first message of a user, for threads without a title.",
        ),
    ] = None,
    resource_id: Annotated[Str | None, Query(max_length=500)] = None,
    parent_thread_id: Uuid | None = None,
) -> Page[ListedThreadOut]:
    """List threads, by default the newest first. `metadata.KEY=TEXT` filters by metadata."""
    names = frozenset[str]() if include is None else listed_names("include", include, _PREVIEWS)
    parent = None if parent_thread_id is None else ThreadId(parent_thread_id)
    wanted = ThreadFilter(
        key=key, title=title, resource_id=resource_id, parent_thread_id=parent, metadata=metadata
    )
    query = paging.of(list="threads", sort=sort, **asdict(wanted))
    found = await records.list_threads(
        ctx,
        principal,
        wanted,
        query.by_creation(),
        sort,
        last_messages="last_message" in names,
        first_messages="first_message" in names,
    )
    return Page[ListedThreadOut].of(
        found, show=listed_thread_out, cursor=lambda each: _cursor(query.name, each)
    )


def _cursor(query: Mapping[str, Any], listed: ListedThread) -> str:
    thread = listed.thread
    if listed.last_run_at is None or thread.latest_run_id is None:
        return cursors.encode(query, thread.created_at, thread.id)
    return cursors.encode(query, listed.last_run_at, thread.latest_run_id)


@router.get("/{thread_id}", responses=_of_a_thread)
async def get_thread(thread_id: Uuid, ctx: ContextDep, principal: MayRead) -> ThreadOut:
    """Get a thread."""
    return ThreadOut.model_validate(await records.read_thread(ctx, principal, ThreadId(thread_id)))


@router.patch("/{thread_id}", responses=_of_a_thread)
async def change_thread(
    thread_id: Uuid, body: ThreadChange, ctx: ContextDep, principal: MayWrite
) -> ThreadOut:
    """Change the fields that are sent. null clears a title or a resource id."""
    changes = {name: getattr(body, name) for name in body.model_fields_set}
    if changes.get("metadata", {}) is None:
        changes["metadata"] = {}
    return ThreadOut.model_validate(
        await threads.change_thread(ctx, principal, ThreadId(thread_id), changes)
    )


@router.delete(
    "/{thread_id}",
    status_code=204,
    responses=error_responses("thread_not_found", "has_active_run", "has_children"),
)
async def delete_thread(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayWrite,
    children: Annotated[
        threads.ChildThreads,
        Query(
            description="What happens to its child threads: refuse the request, detach them, or delete them."
        ),
    ] = threads.ChildThreads.REJECT,
) -> None:
    """Delete a thread with its runs, messages and events. Refused while a run occupies it."""
    await threads.delete_thread(ctx, principal, ThreadId(thread_id), children)


@router.get("/{thread_id}/messages", responses=_of_a_thread)
async def list_messages(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayRead,
    paging: ListedAscending,
    from_seq: Annotated[
        Seq | None, Query(description="Only messages from this position on.")
    ] = None,
    to_seq: Annotated[Seq | None, Query(description="Only messages up to this position.")] = None,
    run_id: Annotated[
        Uuid | None, Query(description="Only messages that this run has written.")
    ] = None,
    visibility: Literal["all", "internal", "any"] = "all",
    include: Annotated[
        str | None,
        Query(
            max_length=100,
            description="What to show in addition, separated by commas. `rolled_back`: messages that were "
            "rolled back. `provider_data`: what providers want back with their answers.",
        ),
    ] = None,
) -> Page[MessageOut]:
    """List the messages of a thread, by default the oldest first, without internal ones and those rolled
    back."""
    names = frozenset[str]() if include is None else listed_names("include", include, _INCLUDED)
    wanted = MessageFilter(
        from_seq=from_seq,
        to_seq=to_seq,
        run_id=None if run_id is None else RunId(run_id),
        visibility=None if visibility == "any" else Visibility(visibility),
        with_rolled_back="rolled_back" in names,
    )
    query = paging.of(list=f"messages of {thread_id}", **asdict(wanted))
    found = await records.list_messages(
        ctx, principal, ThreadId(thread_id), wanted, query.by_number()
    )
    return Page[MessageOut].of(
        found,
        show=partial(message_out, with_provider_data="provider_data" in names),
        cursor=lambda entry: cursors.encode_seq(query.name, entry.seq),
    )


@router.get("/{thread_id}/runs", responses=_of_a_thread)
async def list_thread_runs(
    thread_id: Uuid,
    ctx: ContextDep,
    principal: MayRead,
    query: Annotated[RunQuery, in_event_loop(RunQuery)],
    included: ReadIncludeDep,
) -> Page[RunOut]:
    """List the runs of a thread, by default the newest first. `metadata.KEY=TEXT` filters by metadata."""
    await records.read_thread(ctx, principal, ThreadId(thread_id))
    return await page_of_runs(ctx, principal, query, included, ThreadId(thread_id))


@router.get("/{thread_id}/snapshot", response_model=ThreadSnapshotOut, responses=_of_a_thread)
async def get_thread_snapshot(
    thread_id: Uuid,
    ctx: ContextDep,
    reader: MayFollowThread,
    included: ReadIncludeDep,
    messages_limit: MessagesLimit = DEFAULT_MESSAGES_LIMIT,
) -> Response:
    """Get the thread, its newest messages and what its open run is doing. Follow its events after
    `last_event_id`. A stream token of the thread is enough."""
    found = await read_thread_snapshot(ctx, reader, ThreadId(thread_id), messages_limit)
    view = found.view
    if view is not None and included.usage:
        [view] = await with_usage(ctx, reader, [view])
    without_messages = ThreadSnapshotHead(
        thread=ThreadOut.model_validate(found.thread),
        run=None if view is None else run_out(view, included),
        **open_output(found),
    )
    return sliced_json(without_messages, "messages", found.messages, message_out)


@router.get(
    "/{thread_id}/events",
    response_model=EventsPage,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events, as a page or a stream"},
        **_of_a_thread,
    },
)
async def list_thread_events(
    thread_id: Uuid,
    request: Request,
    ctx: ContextDep,
    reader: MayFollowThread,
    options: StreamOptionsDep,
    query: Annotated[StreamQuery, in_event_loop(StreamQuery)],
    included: IncludeDep,
) -> Response:
    """The events of all runs of a thread: as a stream, which stays open, or as a page."""
    await records.read_thread(ctx, reader, ThreadId(thread_id))
    source = StreamSource(
        StreamScope(reader.tenant, ThreadId(thread_id)),
        before_first=0,
        is_done=False,
        snapshot=f"/v1/threads/{thread_id}/snapshot",
    )
    return await read_events(request, ctx, source, query, included, options)
