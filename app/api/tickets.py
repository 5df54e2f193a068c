"""Tickets over HTTP: the inbox, one ticket with all that it takes to decide, and the inbox as a stream."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from app.api.schemas.common import Instant, ListCursor, ListLimit, Page, Str, Uuid
from app.api.schemas.runs import EventsPage
from app.api.schemas.tickets import TicketOut, TicketPageOut, ticket_out, ticket_page_out
from app.control import tickets as inbox
from app.domain.ids import AgentId, RunId, TicketKey
from app.domain.tickets import TicketFilter, TicketKind, TicketStatus
from app.events.follow import parse_cursor
from app.events.ticket_feed import TicketFollower, beginning, check_cursor, read_page
from app.transport import cursors
from app.transport.access import AuthorizedRoute, MayFollowInbox, MayRead
from app.transport.deps import (
    DeskDep,
    StreamOptionsDep,
)
from app.transport.headers import wants_event_stream
from app.transport.refusals import refusals
from app.transport.sse import EventStream

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/tickets", tags=["tickets"])

ListedKind = Literal["approval", "input", "frontend", "outcome_unknown", "limit", "auth", "event"]
AgentName = Annotated[Str | None, Query(max_length=200)]
ToolName = Annotated[Str | None, Query(max_length=200)]


@router.get("")
async def list_tickets(
    desk: DeskDep,
    principal: MayRead,
    status: Annotated[TicketStatus | None, Query(description="`open` for what waits.")] = None,
    kind: Annotated[
        ListedKind | None,
        Query(description="One kind. `event` is listed only when it is asked for."),
    ] = None,
    agent_id: AgentName = None,
    tool: ToolName = None,
    run_id: Uuid | None = None,
    assignee: Annotated[
        Literal["me"] | None,
        Query(description="`me`: open ones that the rules let you answer, and you haven't."),
    ] = None,
    expires_before: Instant | None = None,
    cursor: ListCursor = None,
    limit: ListLimit = 50,
) -> Page[TicketOut]:
    """Questions of all runs, newest first."""
    query = {
        "list": "tickets",
        "status": status,
        "kind": kind,
        "agent": agent_id,
        "tool": tool,
        "run": run_id,
        "assignee": assignee,
        "expires_before": expires_before,
    }
    place = cursors.decode(query, cursor)
    wanted = TicketFilter(
        status=status,
        kind=None if kind is None else TicketKind(kind),
        agent_id=None if agent_id is None else AgentId(agent_id),
        tool=tool,
        run_id=None if run_id is None else RunId(run_id),
        expires_before=expires_before,
        decidable_by=None if assignee is None else principal,
    )
    found = await inbox.page(
        desk,
        principal,
        wanted,
        before=None if place is None else (place[0], TicketKey(place[1])),
        limit=limit,
    )
    return Page[TicketOut].of(
        found,
        show=ticket_out,
        cursor=lambda ticket: cursors.encode(query, ticket.created_at, ticket.key),
    )


@dataclass(frozen=True, slots=True)
class Following:
    """How a client wants to read the inbox. A browser keeps its URL and adds the header: that wins."""

    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="The last id seen. Wins over `after`."),
    ] = None
    after: Annotated[str | None, Query(max_length=30, description="Begin after this id.")] = None
    begin: Annotated[
        Literal["start", "now"],
        Query(
            alias="from",
            description="Where to begin without an id: at the first notice that is kept, or now.",
        ),
    ] = "start"
    agent_id: AgentName = None
    tool: ToolName = None
    named: Annotated[bool, Query(description="`1` adds `event:` lines with the event's type.")] = (
        False
    )
    limit: Annotated[int, Query(ge=1, le=500, description="Of a page.")] = 100


@router.get(
    "/events",
    response_model=EventsPage,
    responses={
        200: {
            "content": {"text/event-stream": {}},
            "description": "Notices, as a page or a stream",
        },
    },
)
async def follow_the_inbox(
    request: Request,
    desk: DeskDep,
    reader: MayFollowInbox,
    options: StreamOptionsDep,
    wish: Annotated[Following, Depends()],
) -> Response:
    """What becomes of the tenant's tickets, each once and in order: opened, voted, decided, reminded of,
    expired, void. `seq` counts within the inbox. The stream stays open."""
    wanted = TicketFilter(
        agent_id=None if wish.agent_id is None else AgentId(wish.agent_id), tool=wish.tool
    )
    text = wish.last_event_id if wish.last_event_id is not None else wish.after
    if text is None:
        after = await beginning(desk.database, reader.tenant, now=wish.begin == "now")
    else:
        after = await check_cursor(desk.database, reader.tenant, parse_cursor(text))
    if wants_event_stream(request):
        follower = TicketFollower(
            desk.database,
            desk.hub,
            reader.tenant,
            wanted,
            after=after,
            heartbeat=options.heartbeat,
            poll=desk.inbox_poll,
        )
        return EventStream(follower, options, named=wish.named)
    frames, cursor, has_more = await read_page(
        desk.database, reader.tenant, wanted, after, wish.limit
    )
    body = b'{"items":[%s],"next_cursor":"%d","has_more":%s}' % (
        b",".join(frame.json for frame in frames),
        cursor,
        b"true" if has_more else b"false",
    )
    return Response(body, media_type="application/json")


@router.get("/{id}", responses=refusals("ticket_not_found"))
async def read_a_ticket(id: Uuid, desk: DeskDep, principal: MayRead) -> TicketPageOut:
    """The call, who asks for it, what was said before, and what was decided about calls like it."""
    return ticket_page_out(await inbox.ticket(desk, principal, TicketKey(id)))
