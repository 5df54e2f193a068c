"""Routes of tickets: the list, one ticket in detail, and the stream of ticket events."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from app.api.event_streams import CursorQuery
from app.api.lists import Listed
from app.api.schemas.common import Instant, Page, Str, Uuid
from app.api.schemas.runs import EventsPage
from app.api.schemas.thread_names import ThreadQuery
from app.api.schemas.tickets import TicketDetailOut, TicketOut, ticket_detail_out
from app.domain.ids import AgentId, RunId, TicketKey
from app.domain.tickets.tickets import TicketFilter, TicketKind, TicketStatus
from app.events.follow import parse_cursor
from app.events.follow_tickets import (
    NoticeFilter,
    TicketFollower,
    check_cursor,
    first_cursor,
    read_page,
)
from app.http import cursors
from app.http.access import AuthorizedRoute, MayFollowInbox, MayRead
from app.http.deps import ContextDep, StreamOptionsDep
from app.http.error_codes import error_responses
from app.http.headers import wants_event_stream
from app.http.query_params import in_event_loop
from app.http.sse import EventStream
from app.queries import inbox

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/tickets", tags=["tickets"])

ListedKind = Literal["approval", "input", "frontend", "outcome_unknown", "limit", "auth", "event"]
AgentName = Annotated[Str | None, Query(max_length=200)]
ToolName = Annotated[
    Str | None, Query(max_length=200, description="Only tickets about calls of this tool.")
]


@router.get("")
async def list_tickets(
    ctx: ContextDep,
    principal: MayRead,
    paging: Listed,
    thread: Annotated[ThreadQuery, in_event_loop(ThreadQuery)],
    status: Annotated[
        TicketStatus | None, Query(description="Only tickets with this status, such as `open`.")
    ] = None,
    kind: Annotated[
        ListedKind | None,
        Query(description="Only tickets of this kind. `event` is listed only if it is named here."),
    ] = None,
    agent_id: AgentName = None,
    tool_name: ToolName = None,
    run_id: Uuid | None = None,
    assignee: Annotated[
        Literal["me"] | None,
        Query(description="`me`: only open tickets that you may decide and haven't voted on."),
    ] = None,
    expires_before: Instant | None = None,
) -> Page[TicketOut]:
    """List tickets of all runs, by default the newest first."""
    thread_id = thread.thread_in(principal.tenant)
    query = paging.of(
        list="tickets",
        status=status,
        kind=kind,
        agent=agent_id,
        tool=tool_name,
        run=run_id,
        thread=thread_id,
        assignee=assignee,
        expires_before=expires_before,
    )
    wanted = TicketFilter(
        status=status,
        kind=None if kind is None else TicketKind(kind),
        agent_id=None if agent_id is None else AgentId(agent_id),
        tool_name=tool_name,
        run_id=None if run_id is None else RunId(run_id),
        thread_id=thread_id,
        expires_before=expires_before,
        decidable_by=None if assignee is None else principal,
    )
    found = await inbox.list_tickets(ctx, principal, wanted, query.by_creation())
    return Page[TicketOut].of(
        found,
        show=TicketOut.model_validate,
        cursor=lambda ticket: cursors.encode(query.name, ticket.created_at, ticket.id),
    )


@dataclass(frozen=True, slots=True)
class InboxQuery(CursorQuery):
    """Query of the ticket events."""

    agent_id: AgentName = None
    tool_name: ToolName = None


@router.get(
    "/events",
    response_model=EventsPage,
    responses={
        200: {
            "content": {"text/event-stream": {}},
            "description": "Ticket events, as a page or a stream",
        },
    },
)
async def list_ticket_events(
    request: Request,
    ctx: ContextDep,
    reader: MayFollowInbox,
    options: StreamOptionsDep,
    query: Annotated[InboxQuery, in_event_loop(InboxQuery)],
) -> Response:
    """Events of all tickets of the tenant, in order: opened, voted, decided, reminder, expired, void. `seq`
    counts ticket events only. A stream stays open."""
    wanted = NoticeFilter(
        agent_id=None if query.agent_id is None else AgentId(query.agent_id),
        tool_name=query.tool_name,
    )
    text = query.cursor_text
    if text is None:
        after = await first_cursor(ctx.database, reader.tenant, now=query.begin == "now")
    else:
        after = await check_cursor(ctx.database, reader.tenant, parse_cursor(text))
    if wants_event_stream(request):
        follower = TicketFollower(
            ctx.feeds, reader.tenant, wanted, after=after, heartbeat=options.heartbeat
        )
        return EventStream(follower, options, named=query.named)
    frames, cursor, has_more = await read_page(
        ctx.database, reader.tenant, wanted, after, query.limit
    )
    body = b'{"items":[%s],"next_cursor":"%d","has_more":%s}' % (
        b",".join(frame.json for frame in frames),
        cursor,
        b"true" if has_more else b"false",
    )
    return Response(body, media_type="application/json")


@router.get("/{ticket_id}", responses=error_responses("ticket_not_found"))
async def get_ticket(ticket_id: Uuid, ctx: ContextDep, principal: MayRead) -> TicketDetailOut:
    """Get a ticket with its run, tool and last messages, and decisions about similar calls."""
    return ticket_detail_out(await inbox.read_ticket(ctx, principal, TicketKey(ticket_id)))
