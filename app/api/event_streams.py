"""Event streams of runs and threads: cursors, filters and pages."""

from typing import Annotated, Literal, get_args

from fastapi import Header, Query, Request, Response
from msgspec import Struct

from app.api.included import Included
from app.context import ServiceContext
from app.domain.errors import Invalid
from app.domain.events.agent_events import DELTA_EVENTS, AgentEvent
from app.domain.events.run_events import StateSnapshot
from app.events.cut_texts import cut_texts
from app.events.follow import (
    Follower,
    StreamScope,
    check_cursor,
    first_cursor,
    follow,
    last_cursor,
    parse_cursor,
    read_page,
)
from app.events.selection import EventSelection
from app.http.headers import wants_event_stream
from app.http.sse import EventStream, StreamOptions

_STATE_EVENTS = frozenset({StateSnapshot.event_type})
EVENT_TYPES = frozenset(event.event_type for event in get_args(AgentEvent))


class CursorQuery(Struct, frozen=True):
    """Where to begin in events. `Last-Event-ID` wins, because a reconnecting browser keeps its URL."""

    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            description="Id of the last event that you got. Wins over `cursor`.",
        ),
    ] = None
    cursor: Annotated[
        str | None,
        Query(
            max_length=30,
            description="Begin after the event with this id: `next_cursor` of the previous page, or "
            "`last_event_id` of a snapshot.",
        ),
    ] = None
    begin: Annotated[
        Literal["start", "now"],
        Query(
            alias="from",
            description="Where to begin without an id: at the first event that is kept, or now.",
        ),
    ] = "start"
    named: Annotated[bool, Query(description="`1` adds `event:` lines with the event's type.")] = (
        False
    )
    limit: Annotated[int, Query(ge=1, le=500, description="Maximum number of items of a page.")] = (
        100
    )

    @property
    def cursor_text(self) -> str | None:
        return self.cursor if self.last_event_id is None else self.last_event_id


class StreamQuery(CursorQuery, frozen=True):
    """Query of events."""

    types: Annotated[
        str | None,
        Query(max_length=1000, description="Only events of these types, separated by commas."),
    ] = None
    deltas: Annotated[bool, Query(description="`0` leaves out deltas.")] = True
    max_field_bytes: Annotated[
        int | None,
        Query(
            ge=100,
            le=1_000_000,
            description="On a page, texts with more bytes are cut there. `cut` of the event has their JSON "
            "Pointers. GET /v1/runs/{run_id}/events/{seq} has the whole event.",
        ),
    ] = None

    def selection(self, included: Included) -> EventSelection:
        chosen = None if self.types is None else frozenset(self.types.split(","))
        if unknown := sorted((chosen or frozenset()) - EVENT_TYPES):
            raise Invalid("invalid_request", f"query.types: {unknown[0]!r} is no event type.")
        return selection(included, only=chosen, deltas=self.deltas)


def selection(
    included: Included, *, only: frozenset[str] | None = None, deltas: bool = True
) -> EventSelection:
    """The events that a client gets. A client that names the type `state_snapshot` gets these events, too."""
    has_state = included.state or only is not None
    without = (frozenset() if has_state else _STATE_EVENTS) | (
        frozenset() if deltas else DELTA_EVENTS
    )
    return EventSelection(only, without, trace=included.trace)


class StreamSource(Struct, frozen=True):
    """The events to read: their scope, the number before the first one, and the snapshot's address."""

    scope: StreamScope
    before_first: int
    is_done: bool
    snapshot: str


async def read_events(
    request: Request,
    ctx: ServiceContext,
    source: StreamSource,
    query: StreamQuery,
    included: Included,
    options: StreamOptions,
) -> Response:
    """A stream of events if the client asks for one, else a page."""
    selected = query.selection(included)
    after = await _after(ctx, source, query)
    if not wants_event_stream(request):
        await check_cursor(ctx.database.pool, source.scope, after, source.snapshot)
        return await _page(ctx, source.scope, after, query.limit, selected, query.max_field_bytes)
    follower = follow(
        ctx.database.pool,
        ctx.hub,
        source.scope,
        after=after,
        heartbeat=options.heartbeat,
        selected=selected,
    )
    has_events = await _has_events(follower, source)
    if source.is_done and not has_events:
        follower.close()
        return Response(status_code=204)
    return EventStream(
        follower, options, named=query.named, of_one_run=source.scope.run_id is not None
    )


async def _has_events(follower: Follower, source: StreamSource) -> bool:
    """Whether the log has events after the follower's cursor; refuses a cursor that can't be continued."""
    try:
        return await follower.read_first_page(source.snapshot)
    except BaseException:
        follower.close()
        raise


async def _after(ctx: ServiceContext, source: StreamSource, query: StreamQuery) -> int:
    """The number of the event after which to begin."""
    text = query.cursor_text
    if text is not None:
        return parse_cursor(text)
    if query.begin == "now":
        return await last_cursor(ctx.database.pool, source.scope)
    if source.scope.run_id is None:
        return await first_cursor(ctx.database.pool, source.scope)
    return source.before_first


async def _page(
    ctx: ServiceContext,
    scope: StreamScope,
    after: int,
    limit: int,
    selected: EventSelection,
    max_field_bytes: int | None,
) -> Response:
    """A page of events. Clients poll with its `next_cursor`, also if the page isn't full."""
    frames, last, has_more = await read_page(ctx.database.pool, scope, after, limit, selected)
    items = b",".join(cut_texts(frame.json, max_field_bytes) for frame in frames)
    more = b"true" if has_more else b"false"
    body = b'{"items":[%s],"next_cursor":"%d","has_more":%s}' % (items, last, more)
    return Response(body, media_type="application/json")
