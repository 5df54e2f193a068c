"""Routes of tickets: the list, one ticket in detail, and the stream of ticket events."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any, assert_never

from fastapi import APIRouter, Query, Request, Response
from msgspec.structs import asdict

from app.api.event_streams import CursorQuery
from app.api.lists import InPeriod, Listed
from app.api.schemas.common import Page, Uuid
from app.api.schemas.runs.snapshot import EventsPage
from app.api.schemas.tickets import (
    ListedTicketOut,
    TicketCountOut,
    TicketDetailOut,
    listed_ticket_out,
    ticket_detail_out,
)
from app.api.tickets.filters import AgentName, TicketQuery, TicketsWanted, ToolName
from app.domain.ids import AgentId, TicketKey
from app.domain.tickets.tickets import NEVER, Ticket, TicketFilter, TicketSort
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


@router.get("")
async def list_tickets(
    ctx: ContextDep,
    principal: MayRead,
    paging: Listed,
    filters: TicketsWanted,
    sort: Annotated[
        TicketSort,
        Query(
            description="What `order` is about. With `expires_at` and `order=asc`, those that expire first are at the "
            "beginning, and those that never expire at the end."
        ),
    ] = TicketSort.CREATED,
) -> Page[ListedTicketOut]:
    """List tickets of all runs with their votes so far, by default the newest first."""
    wanted = filters.of(principal)
    query = paging.of(list="tickets", sort=sort, **_as_named(filters, wanted))
    found = await inbox.list_tickets(ctx, principal, wanted, query.by_creation(), sort)
    return Page[ListedTicketOut].of(
        found,
        show=partial(listed_ticket_out, principal),
        cursor=lambda each: cursors.encode(query.name, _place(sort, each.ticket), each.ticket.id),
    )


def _as_named(filters: TicketQuery, wanted: TicketFilter) -> dict[str, Any]:
    """The filters that a cursor is valid for."""
    return {**asdict(wanted), "decidable_by": filters.assignee}


def _place(sort: TicketSort, ticket: Ticket) -> datetime:
    match sort:
        case TicketSort.CREATED:
            return ticket.created_at
        case TicketSort.EXPIRY:
            return ticket.expires_at or NEVER
        case _:
            assert_never(sort)


@router.get("/count")
async def count_tickets(
    ctx: ContextDep, principal: MayRead, filters: TicketsWanted, period: InPeriod
) -> TicketCountOut:
    """Count tickets, by the filters of their list: how many are open, for a badge."""
    found = await inbox.count_tickets(ctx, principal, filters.of(principal), period.request())
    return TicketCountOut.model_validate(found)


class InboxQuery(CursorQuery, frozen=True):
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
    found = await inbox.read_ticket(ctx, principal, TicketKey(ticket_id))
    return ticket_detail_out(principal, found)
