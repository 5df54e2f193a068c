"""A cancel request whose notification is lost before the run suspends still ends the run."""

import pytest

from app.agents.catalog import Catalog
from app.domain.ids import CallId
from app.domain.runs.runs import Done, RunStatus
from app.domain.runs.terminations import Cancelled
from app.llm.scripted.model import Call, in_order, turn
from tests.machine.machine import SPEC, tools
from tests.support.conditions import eventually
from tests.support.memory_system import MemorySystem
from tests.support.real_system import DatabaseServices, RealSystem
from tests.support.replicas import open_replica
from tests.support.thread_driver import Incident, IncidentKind, ThreadDriver

pytestmark = pytest.mark.anyio

SCRIPT = [turn(Call(tool="gated", arguments={}, id=CallId("c1")))]


async def commit_points() -> int:
    scenario = ThreadDriver(MemorySystem(SPEC), SPEC, tools())
    await scenario.start(SCRIPT, here=True)
    return await scenario.execute()


@pytest.mark.parametrize("delivery", ["kept", "lost"])
async def test_a_run_that_suspends_with_a_cancel_request_is_ended(
    database_url: str, delivery: str
) -> None:
    """Also if the delivery that was committed with the suspension is lost: the sweeper finds the run."""
    owner = await DatabaseServices.open(database_url)
    replica = RealSystem(owner, SPEC, tools())

    async def is_done() -> bool:
        return (await replica.rows()).record.is_done

    try:
        scenario = ThreadDriver(replica, SPEC, tools())
        await scenario.start(SCRIPT, here=True)
        interruption = await commit_points() - 1
        await scenario.execute([Incident(interruption, IncidentKind.CANCEL_UNNOTICED)])
        rows = await replica.rows()
        assert rows.record.status is RunStatus.WAITING
        assert rows.record.cancel_requested_at is not None
        if delivery == "lost":
            await owner.database.pool.execute("DELETE FROM pgq.pgqueuer")
        catalog = Catalog(agents={SPEC.id: SPEC}, models={}, tools=tools(), plugins={})
        async with open_replica(database_url, catalog, in_order()):
            await eventually(is_done)
        state = (await replica.rows()).record.state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("unwanted")
    finally:
        await owner.close()
