"""Lists, explanations and decisions read no messages and no events, so a thread's length doesn't matter."""

import pytest

from app.commands.tickets.decide import decide
from app.domain.runs.runs import RunFilter
from app.domain.slices import PageRequest
from app.domain.threads.threads import ThreadFilter
from app.domain.tickets.tickets import TicketFilter
from app.llm.scripted.model import Call, in_order, turn
from app.queries import records
from app.queries.explain import explain
from app.queries.inbox import list_tickets as ticket_page
from app.tools.functions.decorator import tool
from tests.support.replicas import ANN, Replica, an_agent, decision, open_replica

pytestmark = pytest.mark.anyio

_AWAY = "ALTER TABLE {0} RENAME TO {0}_away"
_BACK = "ALTER TABLE {0}_away RENAME TO {0}"


@tool(effect="read")
async def risky() -> str:
    """Needs an approval."""
    return "done"


async def rename_tables(replica: Replica, how: str, *tables: str) -> None:
    for table in tables:
        await replica.database.pool.execute(how.format(table))


async def test_lists_explanations_and_decisions_work_without_messages_and_events(
    database_url: str,
) -> None:
    agent, script = an_agent(risky, approval=["risky"]), in_order(turn(Call(tool="risky")))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await replica.take_nothing_new()
        await rename_tables(replica, _AWAY, "messages", "events")
        [view] = await records.list_runs(replica.ctx, ANN, RunFilter(), PageRequest())
        [listed] = await records.list_threads(replica.ctx, ANN, ThreadFilter(), PageRequest())
        [found] = await ticket_page(replica.ctx, ANN, TicketFilter(), PageRequest())
        [reason] = (await explain(replica.ctx, ANN, run.id)).reasons
        await rename_tables(replica, _BACK, "events")
        decided = await decide(replica.ctx, ANN, run.id, [decision(found.ticket.id, "approve")])
        await rename_tables(replica, _BACK, "messages")
    assert (view.run.id, view.open_tickets) == (run.id, (found.ticket,))
    assert listed.thread.id == run.thread_id
    assert reason.code == "waiting_for_tickets"
    assert decided.open_tickets == ()
