"""Tickets over HTTP: the inbox."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.schemas.common import ListCursor, ListLimit, Page, Problem, Str, Uuid
from app.api.schemas.tickets import TicketOut, ticket_out
from app.control import reading
from app.domain.ids import AgentId, RunId, TicketKey
from app.domain.tickets import TicketStatus
from app.transport import cursors
from app.transport.deps import DeskDep, PrincipalDep

router = APIRouter(prefix="/v1/tickets", tags=["tickets"])


@router.get("", responses={400: {"model": Problem, "description": "Bad cursor"}})
async def list_tickets(
    desk: DeskDep,
    principal: PrincipalDep,
    status: Annotated[TicketStatus | None, Query(description="`open` for what waits.")] = None,
    agent_id: Annotated[Str | None, Query(max_length=200)] = None,
    tool: Annotated[Str | None, Query(max_length=200)] = None,
    run_id: Uuid | None = None,
    cursor: ListCursor = None,
    limit: ListLimit = 50,
) -> Page[TicketOut]:
    """Questions of all runs, newest first."""
    query = {"list": "tickets", "status": status, "agent": agent_id, "tool": tool, "run": run_id}
    place = cursors.decode(query, cursor)
    found = await reading.ticket_page(
        desk,
        principal,
        status=status,
        agent_id=None if agent_id is None else AgentId(agent_id),
        tool=tool,
        run_id=None if run_id is None else RunId(run_id),
        before=None if place is None else (place[0], TicketKey(place[1])),
        limit=limit + 1,
    )
    return Page[TicketOut].of(
        found,
        limit,
        show=ticket_out,
        cursor=lambda ticket: cursors.encode(query, ticket.created_at, ticket.key),
    )


@router.get("/{id}", responses={404: {"model": Problem, "description": "Not here"}})
async def read_a_ticket(id: Uuid, desk: DeskDep, principal: PrincipalDep) -> TicketOut:
    return ticket_out(await reading.ticket(desk, principal, TicketKey(id)))
