"""A run's open tickets and its artifacts come in pages that are bounded by bytes."""

import json
from typing import Any

import pytest

from app.api.schemas.runs.run import run_out
from app.clock import new_id
from app.domain.agents.backend_results import OUTPUT_KEY, Artifact
from app.domain.errors import NotFound
from app.domain.ids import RunId
from app.domain.runs.runs import RunFilter
from app.domain.slices import Order, PageRequest
from app.domain.tickets.tickets import TicketFilter
from app.llm.scripted.model import Call, in_order, turn
from app.queries import records
from app.queries.files.artifacts import list_artifacts
from app.queries.inbox import list_tickets
from app.queries.snapshots import read_run_snapshot
from app.storage.page_rows import MAX_PAGE_BYTES
from app.tools.functions.decorator import tool
from tests.support.replicas import ANN, Replica, Run, an_agent, open_replica

pytestmark = pytest.mark.anyio

LARGE = "x" * (MAX_PAGE_BYTES * 2 // 5)
"""Two of these fit into a page, three don't."""


@tool(effect="read")
async def risky(what: str) -> str:
    """Needs an approval."""
    return "done"


async def waiting_for(server: Replica, calls: int) -> Run:
    """A run with an open ticket for each of its calls."""
    run = await server.start()
    await run.finished()
    assert len(await run.tickets()) == calls
    return run


def asking(*arguments: str) -> Any:
    return in_order(turn(*(Call(tool="risky", arguments={"what": each}) for each in arguments)))


async def test_a_run_shows_the_tickets_that_fit_into_a_page(database_url: str) -> None:
    agent, script = an_agent(risky, approval=["risky"]), asking(*[LARGE] * 4)
    async with open_replica(database_url, agent, script) as server:
        run = await waiting_for(server, 4)
        view = await records.read_run(server.ctx, ANN, run.id)
        [listed] = await records.list_runs(server.ctx, ANN, RunFilter(), PageRequest())
        snapshot = await read_run_snapshot(server.ctx, ANN, run.id)
        wanted = TicketFilter(run_id=run.id)
        first = await list_tickets(server.ctx, ANN, wanted, PageRequest())
        after = PageRequest(after=(first[-1].ticket.created_at, first[-1].ticket.id))
        rest = await list_tickets(server.ctx, ANN, wanted, after)
    assert view == listed == snapshot.view
    assert (len(view.open_tickets), view.has_more_tickets) == (2, True)
    shown = run_out(view)
    assert shown.model_dump()["waiting"]["has_more_tickets"] is True
    assert len(shown.model_dump_json()) < MAX_PAGE_BYTES + 100_000
    assert {each.ticket.id for each in (*first, *rest)} >= {each.id for each in view.open_tickets}
    assert len({each.ticket.id for each in (*first, *rest)}) == 4


async def test_a_run_with_one_ticket_larger_than_a_page_shows_it(database_url: str) -> None:
    agent, script = an_agent(risky, approval=["risky"]), asking('"' * (MAX_PAGE_BYTES * 2 // 5))
    async with open_replica(database_url, agent, script) as server:
        # A quote takes four bytes in the text of a row.
        run = await waiting_for(server, 1)
        view = await records.read_run(server.ctx, ANN, run.id)
        [listed] = await records.list_runs(server.ctx, ANN, RunFilter(), PageRequest())
    assert view == listed
    assert (len(view.open_tickets), view.has_more_tickets) == (1, False)
    assert "has_more_tickets" not in (run_out(view).waiting or {})


async def keep_artifacts(server: Replica, run_id: RunId, *contents: str) -> None:
    made = [{"id": str(place), "content": each} for place, each in enumerate(contents)]
    state = {"extensions": {OUTPUT_KEY: {"artifacts": made}}}
    await server.database.pool.execute(
        "UPDATE runs SET state = $2::jsonb WHERE id = $1", run_id, json.dumps(state)
    )


async def test_artifacts_are_paged_by_bytes_in_their_order(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn("done"))) as server:
        run = await server.start()
        await run.finished()
        await keep_artifacts(server, run.id, LARGE, LARGE, LARGE, "small", LARGE * 3)
        found: list[tuple[int, Artifact]] = []
        sizes = []
        has_more = True
        while has_more:
            after = found[-1][0] if found else 0
            page = await list_artifacts(
                server.ctx, ANN, run.id, PageRequest(order=Order.ASC, after=(after,), limit=10)
            )
            found += page
            sizes.append(len(page))
            has_more = page.has_more
        few = await list_artifacts(
            server.ctx, ANN, run.id, PageRequest(order=Order.ASC, after=(found[0][0],), limit=1)
        )
    assert sizes == [2, 2, 1]
    assert [artifact.id for _, artifact in found] == ["0", "1", "2", "3", "4"]
    assert [artifact.id for _, artifact in few] == ["1"]
    assert few.has_more


async def test_a_run_without_artifacts_has_an_empty_page_and_an_unknown_run_none(
    database_url: str,
) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn("done"))) as server:
        run = await server.start()
        await run.finished()
        page = await list_artifacts(
            server.ctx, ANN, run.id, PageRequest(order=Order.ASC, after=(0,), limit=10)
        )
        with pytest.raises(NotFound):
            await list_artifacts(
                server.ctx, ANN, RunId(new_id()), PageRequest(order=Order.ASC, after=(0,), limit=10)
            )
    assert (page.items, page.has_more) == ((), False)
