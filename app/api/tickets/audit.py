"""Routes of the audit: of one run, and of a period as lines of JSON."""

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from app.api.lists import LINES_OF_JSON, ListedAscending, exported
from app.api.schemas.audit import AuditCaseOut, lines_of
from app.api.schemas.common import Instant, Page, Uuid
from app.context import ServiceContext
from app.domain.ids import RunId, TicketKey
from app.domain.json_values import compact
from app.domain.principals import Principal
from app.domain.timestamps import Period
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.queries import audit

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1", tags=["audit"])


@router.get("/runs/{run_id}/audit", responses=error_responses("run_not_found"))
async def list_run_audit(
    run_id: Uuid,
    ctx: ContextDep,
    principal: MayRead,
    paging: ListedAscending,
    ticket_id: Annotated[Uuid | None, Query(description="Only the case of this ticket.")] = None,
) -> Page[AuditCaseOut]:
    """List the audit of a run, by default the oldest first: each call with a ticket, all decisions about it,
    and its outcome."""
    query = paging.of(list="audit", run=run_id, ticket=ticket_id)
    ticket = None if ticket_id is None else TicketKey(ticket_id)
    found = await audit.audit_run(ctx, principal, RunId(run_id), ticket, query.by_creation())
    return Page[AuditCaseOut].of(
        found,
        show=AuditCaseOut.model_validate,
        cursor=lambda case: cursors.encode(query.name, case.ticket.created_at, case.ticket.id),
    )


@router.get(
    "/audit",
    response_class=StreamingResponse,
    responses={200: {"content": {LINES_OF_JSON: {}}, "description": "A JSON object per line"}},
)
async def export_audit(
    ctx: ContextDep,
    principal: MayRead,
    begin: Annotated[
        Instant | None, Query(alias="from", description="Beginning of the period.")
    ] = None,
    end: Annotated[
        Instant | None,
        Query(alias="to", description="End of the period, exclusive. By default now."),
    ] = None,
) -> StreamingResponse:
    """Export the audit of a period, a JSON object per line: `blocked`, `voted`, `refused`, `decided`,
    `expired`, `void` and `executed`, linked by `ticket`. Lines are grouped by ticket, oldest first.
    Adjoining periods have each line once."""
    period = Period(begin, end or ctx.clock.now())
    return await exported(_lines(ctx, principal, period))


async def _lines(ctx: ServiceContext, principal: Principal, period: Period) -> AsyncGenerator[str]:
    async for cases in audit.export_audit(ctx, principal, period):
        yield "".join(f"{compact(line)}\n" for case in cases for line in lines_of(case, period))
