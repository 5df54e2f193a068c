"""Lists, explanations and decisions read no messages and no events: how long a conversation is doesn't matter."""

import pytest

from app.control import reading
from app.control.decide import decide
from app.control.explain import explain
from app.control.tickets import page as ticket_page
from app.domain.runs import RunFilter
from app.domain.tickets import TicketFilter
from app.llm.scripted import Call, in_order, turn
from app.tools.functions import tool
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
        await house.database.hot.execute(how.format(table))


async def test_what_is_long_is_not_read_for_what_is_short(database_url: str) -> None:
    agent, script = an_agent(risky, approval=["risky"]), in_order(turn(Call(tool="risky")))
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await house.take_nothing_new()
        await rename(house, _AWAY, "messages", "events")
        [view] = await reading.run_page(house.desk, ANN, RunFilter(), before=None, limit=10)
        [thread] = await reading.thread_page(
            house.desk,
            ANN,
            resource_id=None,
            parent_thread_id=None,
            metadata={},
            before=None,
            limit=10,
        )
        [ticket] = await ticket_page(house.desk, ANN, TicketFilter(), before=None, limit=10)
        [reason] = (await explain(house.desk, ANN, run.id)).reasons
        await rename(house, _BACK, "events")
        decided = await decide(house.desk, ANN, run.id, [decision(ticket.ticket_id, "approve")])
        await rename(house, _BACK, "messages")
    assert (view.run.id, view.open_tickets) == (run.id, (ticket,))
    assert thread.id == run.thread_id
    assert reason.code == "waiting_for_tickets"
    assert decided.open_tickets == ()
