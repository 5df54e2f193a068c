"""What the streams of runs and threads share: their cursors, filters, pages and endings."""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from fastapi import Header, Query, Request, Response

from app.context import ServiceContext
from app.domain.errors import Invalid
from app.domain.events.run_events import DELTA_EVENTS, AgentEvent
from app.events.follow import (
    Filter,
    StreamScope,
    check_cursor,
    first_cursor,
    follow,
    last_cursor,
    parse_cursor,
    read_page,
)
from app.events.sse_encoding import Frame
from app.http.headers import wants_event_stream
from app.http.sse import EventStream, StreamOptions

EVENT_TYPES = frozenset(event.event_type for event in get_args(AgentEvent))

Cursor = Annotated[str | None, Query(max_length=30, include_in_schema=False)]


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """How a client wants to read events. A browser keeps its URL and adds the header: that wins."""

    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="The last id seen. Wins over `after`."),
    ] = None
    after: Annotated[str | None, Query(max_length=30, description="Begin after this id.")] = None
    cursor: Cursor = None
    starting_after: Cursor = None
    begin: Annotated[
        Literal["start", "now"],
        Query(
            alias="from",
            description="Where to begin without an id: at the first event that is kept, or now.",
        ),
    ] = "start"
    types: Annotated[
        str | None, Query(max_length=1000, description="Only these types, separated by commas.")
    ] = None
    deltas: Annotated[
        bool, Query(description="`0` leaves out pieces of messages that come whole later.")
    ] = True
    named: Annotated[bool, Query(description="`1` adds `event:` lines with the event's type.")] = (
        False
    )
    limit: Annotated[int, Query(ge=1, le=500, description="Of a page.")] = 100

    @property
    def cursor_text(self) -> str | None:
        for given in (self.last_event_id, self.after, self.cursor, self.starting_after):
            if given is not None:
                return given
        return None

    def event_filter(self) -> Filter | None:
        """What passes; None when everything does."""
        chosen = None if self.types is None else frozenset(self.types.split(","))
        if unknown := sorted((chosen or frozenset()) - EVENT_TYPES):
            raise Invalid("invalid_request", f"query.types: there is no type {unknown[0]!r}.")
        if chosen is None and self.deltas:
            return None

        def passes(frame: Frame) -> bool:
            if not self.deltas and frame.event_type in DELTA_EVENTS:
                return False
            return chosen is None or frame.event_type in chosen

        return passes


@dataclass(frozen=True, slots=True)
class StreamSource:
    """What is to be read: a scope, the number before its first event, and where to look instead."""

    scope: StreamScope
    before_first: int
    is_done: bool
    snapshot: str


async def read_events(
    request: Request,
    ctx: ServiceContext,
    readable: StreamSource,
    reading: StreamQuery,
    options: StreamOptions,
) -> Response:
    """Events as they happen when a stream is asked for, as a page otherwise."""
    wanted = reading.event_filter()
    after = await _after(ctx, readable, reading)
    has_more = await check_cursor(ctx.database.pool, readable.scope, after, readable.snapshot)
    if not wants_event_stream(request) and not request.url.path.endswith("/stream"):
        return await _page(ctx, readable.scope, after, reading.limit, wanted)
    if readable.is_done and not has_more:
        return Response(status_code=204)
    follower = follow(
        ctx.database.pool,
        ctx.hub,
        readable.scope,
        after=after,
        heartbeat=options.heartbeat,
        wanted=wanted,
    )
    return EventStream(follower, options, named=reading.named)


async def _after(ctx: ServiceContext, readable: StreamSource, reading: StreamQuery) -> int:
    """The number of the last event that the client doesn't need any more."""
    text = reading.cursor_text
    if text is not None:
        return parse_cursor(text)
    if reading.begin == "now":
        return await last_cursor(ctx.database.pool, readable.scope)
    if readable.scope.run_id is None:
        return await first_cursor(ctx.database.pool, readable.scope)
    return readable.before_first


async def _page(
    ctx: ServiceContext, scope: StreamScope, after: int, limit: int, wanted: Filter | None
) -> Response:
    """The next events as a list; whoever polls goes on with its `next_cursor`, full or not."""
    frames, has_more = await read_page(ctx.database.pool, scope, after, limit)
    last = frames[-1].seq if frames else after
    items = b",".join(frame.json for frame in frames if wanted is None or wanted(frame))
    more = b"true" if has_more else b"false"
    body = b'{"items":[%s],"next_cursor":"%d","has_more":%s}' % (items, last, more)
    return Response(body, media_type="application/json")
