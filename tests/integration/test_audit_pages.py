"""Pages of a run's audit are bounded by bytes, also if its calls and decisions are large."""

import pytest

from app.domain.ids import CallId
from app.domain.slices import Order, PageRequest
from app.llm.scripted.model import Call, in_order, turn
from app.queries.audit import AuditCase, audit_run
from app.storage.page_rows import MAX_PAGE_BYTES
from app.tools.functions.decorator import tool
from tests.support.replicas import ANN, Run, an_agent, decision, open_replica

pytestmark = pytest.mark.anyio

RESULT_BYTES = MAX_PAGE_BYTES // 4
CALLS = [Call(tool="long", arguments={}, id=CallId(f"c{number}")) for number in range(7)]


@tool(effect="read")
async def long() -> str:
    """Returns a long text."""
    return "x" * RESULT_BYTES


async def pages_of(run: Run, order: Order) -> list[list[AuditCase]]:
    pages: list[list[AuditCase]] = []
    request = PageRequest(order=order)
    while True:
        page = await audit_run(run.replica.ctx, ANN, run.id, None, request)
        pages.append(list(page))
        if not page.has_more:
            return pages
        last = page[-1].ticket
        request = PageRequest(order=order, after=(last.created_at, last.id))


async def test_a_page_of_an_audit_has_as_many_cases_as_fit(database_url: str) -> None:
    script = in_order(turn(*CALLS), turn("done"))
    async with open_replica(database_url, an_agent(long, approval=["long"]), script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide_all(*(decision(f"perm_{call.id}", "approve") for call in CALLS))
        await run.ended()
        pages = await pages_of(run, Order.ASC)
        newest_first = await pages_of(run, Order.DESC)
        first = pages[0][0].ticket
        [only] = await audit_run(replica.ctx, ANN, run.id, first.id, PageRequest())
    assert [len(page) for page in pages] == [3, 3, 1]
    calls = [case.ticket.call_id for page in pages for case in page]
    assert calls == [call.id for call in CALLS]
    assert calls[::-1] == [case.ticket.call_id for page in newest_first for case in page]
    assert {case.outcome.outcome for page in pages for case in page if case.outcome} == {
        "succeeded"
    }
    assert only == pages[0][0]
