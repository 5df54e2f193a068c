"""A run that waits holds nothing: no task, no connection, no delivery, no memory, however many wait."""

import asyncio
import gc

import pytest

from app.domain.runs.runs import Waiting
from app.events.journal import Journal
from app.llm.scripted.model import Call, ScriptedTurn, turn
from app.runtime.active_run import ActiveRun
from app.runtime.ports import ModelRequest
from app.tools.functions.decorator import tool
from app.workers.execution import Execution
from tests.support.conditions import eventually
from tests.support.house import Replica, Run, an_agent, replica

pytestmark = pytest.mark.anyio

MANY = 20
_DELIVERIES = "SELECT count(*) FROM pgq.pgqueuer WHERE entrypoint = 'run'"
_TRANSACTIONS = """
    SELECT pid, xact_start FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""


@tool(effect="read")
async def risky() -> str:
    """Has to be approved."""
    return "done"


def remembered() -> int:
    """All that a run consists of while it executes."""
    gc.collect()
    return sum(type(each) in (ActiveRun, Journal, Execution) for each in gc.get_objects())


async def at_rest(house: Replica) -> Run:
    run = await house.start()
    await run.finished()
    assert isinstance((await run.now()).state, Waiting)
    return run


async def test_suspended_runs_hold_nothing(database_url: str) -> None:
    def asks(_: ModelRequest) -> ScriptedTurn:
        return turn(Call(tool="risky"))

    async with replica(database_url, an_agent(risky, approval=["risky"]), asks) as house:
        pool, of_others = house.database.pool, remembered()
        await at_rest(house)
        tasks = len(asyncio.all_tasks())
        for _ in range(MANY):
            await at_rest(house)

        async def transactions() -> set[tuple[object, ...]]:
            return {tuple(row) for row in await pool.fetch(_TRANSACTIONS)}

        async def nothing_is_held() -> bool:
            before = await transactions()
            return (
                remembered() <= of_others
                and await pool.fetchval(_DELIVERIES) == 0
                # The process itself looks around now and then, and is done in a moment.
                and not before & await transactions()
            )

        await eventually(nothing_is_held)
        assert len(asyncio.all_tasks()) < tasks + MANY / 2
