"""Suspended runs hold no asyncio task, connection, delivery or memory, however many there are."""

import asyncio
import gc

import pytest

from app.domain.runs.runs import Waiting
from app.events.journal import Journal
from app.llm.scripted.model import Call, ScriptedTurn, turn
from app.runtime.active_run import ActiveRun
from app.runtime.ports.models import ModelRequest
from app.tools.functions.decorator import tool
from app.workers.execution import Execution
from tests.support.conditions import eventually
from tests.support.replicas import Replica, Run, an_agent, open_replica

pytestmark = pytest.mark.anyio

SUSPENDED_RUNS = 50
"""Half of them is more than the dozen tasks that a queue starts for itself while the first runs execute."""
_DELIVERIES = "SELECT count(*) FROM pgq.pgqueuer WHERE entrypoint = 'run'"
_TRANSACTIONS = """
    SELECT pid, xact_start FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""


@tool(effect="read")
async def risky() -> str:
    """Needs an approval."""
    return "done"


def live_execution_objects() -> int:
    """The number of objects that belong to executing runs."""
    gc.collect()
    return sum(type(each) in (ActiveRun, Journal, Execution) for each in gc.get_objects())


async def start_and_suspend(replica: Replica) -> Run:
    run = await replica.start()
    await run.finished()
    assert isinstance((await run.now()).state, Waiting)
    return run


async def test_suspended_runs_hold_nothing(database_url: str) -> None:
    def calls_risky(_: ModelRequest) -> ScriptedTurn:
        return turn(Call(tool="risky"))

    async with open_replica(
        database_url, an_agent(risky, approval=["risky"]), calls_risky
    ) as replica:
        pool, before_any_run = replica.database.pool, live_execution_objects()
        await start_and_suspend(replica)
        tasks = len(asyncio.all_tasks())
        for _ in range(SUSPENDED_RUNS):
            await start_and_suspend(replica)

        async def transactions() -> set[tuple[object, ...]]:
            return {tuple(row) for row in await pool.fetch(_TRANSACTIONS)}

        async def nothing_is_held() -> bool:
            before = await transactions()
            return (
                live_execution_objects() <= before_any_run
                and await pool.fetchval(_DELIVERIES) == 0
                # Periodic jobs of the process open short transactions, so compare two readings.
                and not before & await transactions()
            )

        await eventually(nothing_is_held)
        assert len(asyncio.all_tasks()) < tasks + SUSPENDED_RUNS / 2
