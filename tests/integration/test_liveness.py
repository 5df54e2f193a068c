"""Heartbeats: what they prove, and what they find that nobody executes."""

import pytest

from app.domain.ids import WorkerId
from app.storage.postgres.database import Database
from app.workers.heartbeat import Heartbeat
from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.periodic.sweeper import Sweeper
from tests.support.clocks import Clock
from tests.support.stored_runs import admit, some_run
from tests.support.strangers import demo_roster, idle_task_worker, idle_worker, never_deaf

pytestmark = pytest.mark.anyio


async def test_a_run_that_was_claimed_without_anybody_knowing_is_let_go(database: Database) -> None:
    """The commit of its start landed, the reply was lost: only this process could ever find it."""
    worker = idle_worker(database)
    tasks = idle_task_worker(database, worker.worker_id)
    liveness = Heartbeat(
        database,
        worker,
        tasks,
        role="all",
        interval=1,
        patience=5,
        outage_allowance=never_deaf(),
    )
    await liveness.beat()
    run = some_run("hello")
    await admit(database.pool, run, WorkerId(worker.worker_id))
    await liveness.beat()
    owner = "SELECT owner FROM runs WHERE id = $1"
    assert await database.pool.fetchval(owner, run.id) == worker.worker_id
    await liveness.beat()
    assert await database.pool.fetchval(owner, run.id) is None
    assert await database.pool.fetchval("SELECT count(*) FROM pgq.pgqueuer") == 1


async def test_who_could_not_be_heard_is_not_thought_dead(database: Database) -> None:
    """The database was away for everybody: the first sweep after that takes nobody's runs."""
    worker = idle_worker(database)
    tasks = idle_task_worker(database, worker.worker_id)
    clock = Clock()
    outage_allowance = OutageAllowance(clock, remembered=10)
    liveness = Heartbeat(
        database,
        worker,
        tasks,
        role="all",
        interval=1,
        patience=5,
        outage_allowance=outage_allowance,
    )
    await liveness.beat()
    await admit(database.pool, some_run("hello"), WorkerId(worker.worker_id))
    await database.pool.execute("UPDATE workers SET heartbeat_at = now() - interval '60 seconds'")
    sweeper = Sweeper(
        database,
        demo_roster(database),
        interval=1,
        heartbeat_timeout=10,
        outage_allowance=outage_allowance,
    )
    clock.now += 60
    outage_allowance.heartbeat_failed()
    assert await sweeper.run_once() == 0
    outage_allowance.heartbeat_succeeded()
    clock.now += 10
    assert await sweeper.run_once() == 0, "its heartbeat is awaited"
    clock.now += 1
    assert await sweeper.run_once() == 1, "and it never came"
