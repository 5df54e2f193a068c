"""The audit over HTTP: of one run, and of a period as lines of JSON."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from app.api.schemas.audit import AuditOut, case_out, lines_of
from app.api.schemas.common import Instant, Uuid
from app.context import ServiceContext
from app.domain.ids import RunId
from app.domain.json_values import compact
from app.domain.principals import Principal
from app.domain.timestamps import Period
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.queries import audit

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1", tags=["audit"])

LINES_PER_PAGE = "application/x-ndjson"


@router.get("/runs/{run_id}/audit", responses=error_responses("run_not_found"))
async def audit_a_run(run_id: Uuid, ctx: ContextDep, principal: MayRead) -> AuditOut:
    """Each call that was held back: who answered what and why, whose answers were refused, and what
    the call came to."""
    cases = await audit.audit_run(ctx, principal, RunId(run_id))
    return AuditOut(run_id=run_id, cases=[case_out(case) for case in cases])


@router.get(
    "/audit",
    response_class=StreamingResponse,
    responses={200: {"content": {LINES_PER_PAGE: {}}, "description": "A JSON object per line"}},
)
async def export_the_audit(
    ctx: ContextDep,
    principal: MayRead,
    begin: Annotated[Instant | None, Query(alias="from", description="The first moment.")] = None,
    end: Annotated[
        Instant | None, Query(alias="to", description="The first moment that isn't in; else now.")
    ] = None,
) -> StreamingResponse:
    """Everything that has happened about calls that were held back, a JSON object per line: `blocked`,
    `voted`, `refused`, `decided`, `expired`, `void` and `executed`, linked by `ticket`. Lines of one
    ticket stand together, the oldest ticket first; periods that adjoin have each line once."""
    period = Period(begin, end or ctx.clock.now())
    lines = _lines(ctx, principal, period)
    # What goes wrong at once is still told as a problem; later the body can only break off.
    first = await anext(lines, "")
    return StreamingResponse(_after(first, lines), media_type=LINES_PER_PAGE)


async def _lines(ctx: ServiceContext, principal: Principal, period: Period) -> AsyncGenerator[str]:
    async for cases in audit.export_audit(ctx, principal, period):
        yield "".join(f"{compact(line)}\n" for case in cases for line in lines_of(case, period))


async def _after(first: str, lines: AsyncGenerator[str]) -> AsyncGenerator[str]:
    async with aclosing(lines):
        yield first
        async for more in lines:
            yield more
