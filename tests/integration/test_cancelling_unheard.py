"""A wish to cancel that reaches nobody before the run comes to rest: it counts all the same."""

import pytest

from app.agents.catalog import Catalog
from app.domain.ids import CallId
from app.domain.runs.runs import Done, RunStatus
from app.domain.runs.terminations import Cancelled
from app.llm.scripted.model import Call, in_order, turn
from tests.machine.machine import SPEC, tools
from tests.support.conditions import eventually
from tests.support.house import replica
from tests.support.memory_house import MemoryHouse
from tests.support.playing import Happening, Kind, Player
from tests.support.real_house import Office, RealHouse

pytestmark = pytest.mark.anyio

SCRIPT = [turn(Call(tool="gated", arguments={}, id=CallId("c1")))]


async def points_until_it_rests() -> int:
    player = Player(MemoryHouse(SPEC), SPEC, tools())
    await player.start(SCRIPT, here=True)
    return await player.execute()


@pytest.mark.parametrize("delivery", ["kept", "lost"])
async def test_a_run_that_is_suspended_with_a_cancel_request_is_ended(
    database_url: str, delivery: str
) -> None:
    """Also if the delivery that was committed with the suspension is lost: the sweeper finds the run."""
    office = await Office.open(database_url)
    house = RealHouse(office, SPEC, tools())

    async def is_done() -> bool:
        return (await house.rows()).record.is_done

    try:
        player = Player(house, SPEC, tools())
        await player.start(SCRIPT, here=True)
        right_before_the_commit = await points_until_it_rests() - 1
        await player.execute([Happening(right_before_the_commit, Kind.CANCEL_UNHEARD)])
        rows = await house.rows()
        assert rows.record.status is RunStatus.WAITING
        assert rows.record.cancel_requested_at is not None
        if delivery == "lost":
            await office.database.pool.execute("DELETE FROM pgq.pgqueuer")
        catalog = Catalog(agents={SPEC.id: SPEC}, models={}, tools=tools(), plugins={})
        async with replica(database_url, catalog, in_order()):
            await eventually(is_done)
        state = (await house.rows()).record.state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("unwanted")
    finally:
        await office.close()
