"""Lists, explanations and decisions read no messages and no events: how long a conversation is doesn't matter."""

import pytest

from app.commands.tickets.decide import decide
from app.domain.runs.runs import RunFilter
from app.domain.tickets.tickets import TicketFilter
from app.llm.scripted.model import Call, in_order, turn
from app.queries import records
from app.queries.explain import explain
from app.queries.inbox import list_tickets as ticket_page
from app.tools.functions.decorator import tool
from tests.support.house import ANN, Replica, an_agent, decision, replica

pytestmark = pytest.mark.anyio

_AWAY = "ALTER TABLE {0} RENAME TO {0}_away"
_BACK = "ALTER TABLE {0}_away RENAME TO {0}"


@tool(effect="read")
async def risky() -> str:
    """Has to be approved."""
    return "done"


async def rename(house: Replica, how: str, *tables: str) -> None:
    for table in tables:
        await house.database.pool.execute(how.format(table))


async def test_what_is_long_is_not_read_for_what_is_short(database_url: str) -> None:
    agent, script = an_agent(risky, approval=["risky"]), in_order(turn(Call(tool="risky")))
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await house.take_nothing_new()
        await rename(house, _AWAY, "messages", "events")
        [view] = await records.list_runs(house.ctx, ANN, RunFilter(), before=None, limit=10)
        [thread] = await records.list_threads(
            house.ctx,
            ANN,
            resource_id=None,
            parent_thread_id=None,
            metadata={},
            before=None,
            limit=10,
        )
        [ticket] = await ticket_page(house.ctx, ANN, TicketFilter(), before=None, limit=10)
        [reason] = (await explain(house.ctx, ANN, run.id)).reasons
        await rename(house, _BACK, "events")
        decided = await decide(house.ctx, ANN, run.id, [decision(ticket.name, "approve")])
        await rename(house, _BACK, "messages")
    assert (view.run.id, view.open_tickets) == (run.id, (ticket,))
    assert thread.id == run.thread_id
    assert reason.code == "waiting_for_tickets"
    assert decided.open_tickets == ()
