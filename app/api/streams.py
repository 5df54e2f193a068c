"""What the streams of runs and threads share: their cursors, filters, pages and endings."""

from typing import Annotated

from fastapi import Header, Query, Response

from app.control.desk import Desk
from app.events.follow import Scope, check_cursor, follow, newest, parse_cursor, read_page
from app.transport.sse import StreamOptions, stream, wanted

LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="The last id that you have seen. Wins over `after`."),
]
AfterId = Annotated[str | None, Query(max_length=30, description="Begin after this event.")]
Types = Annotated[
    str | None, Query(max_length=1000, description="Only these event types, separated by commas.")
]
Deltas = Annotated[
    bool, Query(description="`0` leaves out pieces of messages that come whole later.")
]
Named = Annotated[bool, Query(description="`1` adds `event:` lines with the event's type.")]


async def event_stream(
    desk: Desk,
    scope: Scope,
    *,
    cursor: str | None,
    begin: int,
    from_now: bool,
    is_done: bool,
    shape: tuple[str | None, bool, bool],
    options: StreamOptions,
    snapshot: str,
) -> Response:
    """Follow a scope from a cursor, from its beginning, or from now."""
    pool = desk.database.hot
    after = begin if cursor is None else max(parse_cursor(cursor), 0)
    if cursor is None and from_now:
        after = await newest(pool, scope)
    has_more = await check_cursor(pool, scope, after, snapshot)
    if is_done and not has_more:
        return Response(status_code=204)
    heard = follow(pool, desk.hub, scope, after=after, heartbeat=options.heartbeat)
    return stream(heard, wanted(*shape), options)


async def events_page(
    desk: Desk, scope: Scope, cursor: str | None, begin: int, limit: int, snapshot: str
) -> Response:
    """The next events as a list."""
    pool = desk.database.hot
    after = begin if cursor is None else parse_cursor(cursor)
    await check_cursor(pool, scope, after, snapshot)
    frames, has_more = await read_page(pool, scope, after, limit)
    items = b",".join(frame.json for frame in frames)
    last = frames[-1].seq if frames else after
    more = b"true" if has_more else b"false"
    body = b'{"items":[%s],"next_cursor":"%d","has_more":%s}' % (items, last, more)
    return Response(body, media_type="application/json")
