"""Tickets over HTTP: the inbox, one ticket with all that it takes to decide, and the inbox as a stream."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from app.api.schemas.common import Instant, ListCursor, ListLimit, Page, Str, Uuid
from app.api.schemas.runs import EventsPage
from app.api.schemas.tickets import TicketOut, TicketPageOut, ticket_out, ticket_page_out
from app.domain.ids import AgentId, RunId, TicketKey
from app.domain.tickets.tickets import TicketFilter, TicketKind, TicketStatus
from app.events.follow import parse_cursor
from app.events.follow_tickets import TicketFollower, check_cursor, first_cursor, read_page
from app.http import cursors
from app.http.access import AuthorizedRoute, MayFollowInbox, MayRead
from app.http.deps import ContextDep, StreamOptionsDep
from app.http.error_codes import error_responses
from app.http.headers import wants_event_stream
from app.http.sse import EventStream
from app.queries import inbox

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/tickets", tags=["tickets"])

ListedKind = Literal["approval", "input", "frontend", "outcome_unknown", "limit", "auth", "event"]
AgentName = Annotated[Str | None, Query(max_length=200)]
ToolName = Annotated[Str | None, Query(max_length=200)]


@router.get("")
async def list_tickets(
    ctx: ContextDep,
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
    found = await inbox.list_tickets(
        ctx,
        principal,
        wanted,
        before=None if place is None else (place[0], TicketKey(place[1])),
        limit=limit,
    )
    return Page[TicketOut].of(
        found,
        show=ticket_out,
        cursor=lambda ticket: cursors.encode(query, ticket.created_at, ticket.id),
    )


@dataclass(frozen=True, slots=True)
class InboxQuery:
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
    ctx: ContextDep,
    reader: MayFollowInbox,
    options: StreamOptionsDep,
    wish: Annotated[InboxQuery, Depends()],
) -> Response:
    """What becomes of the tenant's tickets, each once and in order: opened, voted, decided, reminded of,
    expired, void. `seq` counts within the inbox. The stream stays open."""
    wanted = TicketFilter(
        agent_id=None if wish.agent_id is None else AgentId(wish.agent_id), tool=wish.tool
    )
    text = wish.last_event_id if wish.last_event_id is not None else wish.after
    if text is None:
        after = await first_cursor(ctx.database, reader.tenant, now=wish.begin == "now")
    else:
        after = await check_cursor(ctx.database, reader.tenant, parse_cursor(text))
    if wants_event_stream(request):
        follower = TicketFollower(
            ctx.database,
            ctx.hub,
            reader.tenant,
            wanted,
            after=after,
            heartbeat=options.heartbeat,
            poll=ctx.inbox_poll,
        )
        return EventStream(follower, options, named=wish.named)
    frames, cursor, has_more = await read_page(
        ctx.database, reader.tenant, wanted, after, wish.limit
    )
    body = b'{"items":[%s],"next_cursor":"%d","has_more":%s}' % (
        b",".join(frame.json for frame in frames),
        cursor,
        b"true" if has_more else b"false",
    )
    return Response(body, media_type="application/json")


@router.get("/{id}", responses=error_responses("ticket_not_found"))
async def read_a_ticket(id: Uuid, ctx: ContextDep, principal: MayRead) -> TicketPageOut:
    """The call, who asks for it, what was said before, and what was decided about calls like it."""
    return ticket_page_out(await inbox.read_ticket(ctx, principal, TicketKey(id)))
