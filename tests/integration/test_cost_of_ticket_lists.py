"""A page of tickets reads the votes and the lineage of its own tickets only, however many there are."""

import pytest
from sqlalchemy import text

from app.domain.slices import PageRequest
from app.domain.tickets.tickets import TicketFilter, TicketSort, TicketStatus
from app.llm.scripted.model import Call, in_order, turn
from app.storage.tickets import listing
from app.tools.functions.decorator import tool
from tests.support.replicas import ANN, an_agent, open_replica

pytestmark = pytest.mark.anyio

PAGE = 5
OTHERS = 5_000
"""Tickets beside those of the page."""
MOST_READ = 200
"""Rows of runs and decisions for a page, with those that workers read meanwhile."""


@tool(effect="unsafe")
async def risky(what: str) -> str:
    """Needs an approval."""
    return what


@pytest.mark.parametrize("sort", TicketSort)
async def test_a_page_reads_the_votes_and_runs_of_its_own_tickets(
    database_url: str, sort: TicketSort
) -> None:
    agent = an_agent(risky, approval=["risky"])
    async with open_replica(
        database_url, agent, in_order(turn(Call(tool="risky", arguments={"what": "it"})))
    ) as replica:
        run = await replica.start()
        await run.finished()
        async with replica.ctx.database.transaction() as connection:
            await connection.execute(text(_COPIES), {"tenant": ANN.tenant, "copies": OTHERS})
            await connection.execute(text("ANALYZE tickets, decisions, runs"))
            await connection.execute(text("SELECT pg_stat_force_next_flush()"))
        database = replica.ctx.database
        before = await database.pool.fetchval(_ROWS_READ)
        async with database.reading() as connection:
            page = await listing.page(
                connection,
                ANN.tenant,
                TicketFilter(status=TicketStatus.OPEN),
                sort,
                PageRequest(limit=PAGE),
            )
            await connection.execute(text("SELECT pg_stat_force_next_flush()"))
        read = await database.pool.fetchval(_ROWS_READ) - before
    assert [(each.lineage.root_run_id, len(each.votes)) for each in page] == [(run.id, 1)] * PAGE
    assert PAGE <= read < MOST_READ


_ROWS_READ = """
SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
WHERE relname IN ('runs', 'decisions')
"""
_COPIES = """
WITH copy AS (
    INSERT INTO tickets (tenant, id, run_id, thread_id, agent_id, ticket_id, kind, step_index, tool_name,
        arguments, args_digest, resume_mode, allowed_actions, message, approvers)
    SELECT tenant, gen_random_uuid(), run_id, thread_id, agent_id, 'copy ' || n, kind, step_index, tool_name,
        arguments, args_digest, resume_mode, allowed_actions, message, '{"quorum": 2}'
    FROM tickets, generate_series(1, :copies) AS n WHERE tenant = :tenant
    RETURNING tenant, id
)
INSERT INTO decisions (tenant, ticket, decision_id, action, subject, effect, at)
SELECT tenant, id, 'vote', 'approve', 'ben', 'voted', now() FROM copy
"""
