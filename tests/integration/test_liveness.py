"""Heartbeats: proof of life, and the release of runs that their owner doesn't execute."""

import pytest

from app.domain.ids import WorkerId
from app.storage.postgres.database import Database
from app.storage.runs import unattended
from app.workers.heartbeat import Heartbeat
from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.periodic.sweeper import Sweeper
from tests.support.clocks import Clock
from tests.support.conditions import eventually
from tests.support.isolated_workers import demo_registry, idle_task_worker, idle_worker, no_outages
from tests.support.stored_runs import admit, some_run
from tests.support.stored_runs import worker as new_worker

pytestmark = pytest.mark.anyio


async def test_a_claimed_run_that_its_owner_does_not_execute_is_released(
    database: Database,
) -> None:
    """The start was committed and its reply was lost, so only this process can find the run."""
    worker = idle_worker(database)
    tasks = idle_task_worker(database, worker.worker_id)
    heartbeat = Heartbeat(
        database,
        worker,
        tasks,
        role="all",
        interval=1,
        timeout=5,
        outage_allowance=no_outages(),
    )
    await heartbeat.write()
    run = some_run("hello")
    await admit(database.pool, run, WorkerId(worker.worker_id))
    await heartbeat.write()
    owner = "SELECT owner FROM runs WHERE id = $1"
    assert await database.pool.fetchval(owner, run.id) == worker.worker_id
    await heartbeat.write()
    assert await database.pool.fetchval(owner, run.id) is None
    assert await database.pool.fetchval("SELECT count(*) FROM pgq.pgqueuer") == 1


async def test_a_heartbeat_tells_whether_other_processes_live(database: Database) -> None:
    others: list[bool] = []
    worker = idle_worker(database)
    heartbeat = Heartbeat(
        database,
        worker,
        idle_task_worker(database, worker.worker_id),
        role="all",
        interval=1,
        timeout=5,
        outage_allowance=no_outages(),
        on_others=others.append,
    )
    await heartbeat.write()
    await heartbeat.write()
    other = await new_worker(database.pool)
    await heartbeat.write()
    await database.pool.execute(
        "UPDATE workers SET heartbeat_at = now() - interval '2 minutes' WHERE id = $1", other
    )
    await heartbeat.write()
    assert others == [False, False, True, False]


async def test_after_an_outage_workers_do_not_count_as_dead_at_once(database: Database) -> None:
    """After a database outage for all workers, the first sweep takes no run."""
    worker = idle_worker(database)
    tasks = idle_task_worker(database, worker.worker_id)
    clock = Clock()
    outage_allowance = OutageAllowance(clock, remembered=10)
    heartbeat = Heartbeat(
        database,
        worker,
        tasks,
        role="all",
        interval=1,
        timeout=5,
        outage_allowance=outage_allowance,
    )
    await heartbeat.write()
    await admit(database.pool, some_run("hello"), WorkerId(worker.worker_id))
    await database.pool.execute("UPDATE workers SET heartbeat_at = now() - interval '60 seconds'")
    sweeper = Sweeper(
        database,
        demo_registry(database),
        interval=1,
        heartbeat_timeout=10,
        outage_allowance=outage_allowance,
    )
    clock.now += 60
    outage_allowance.heartbeat_failed()
    assert await sweeper.run_once() == 0
    outage_allowance.heartbeat_succeeded()
    clock.now += 10
    assert await sweeper.run_once() == 0, "the sweeper allows time for a heartbeat"
    clock.now += 1
    assert await sweeper.run_once() == 1, "the heartbeat never came"


async def test_the_sweeper_works_without_its_lock_if_the_holder_is_frozen(
    database: Database,
) -> None:
    await admit(database.pool, some_run("hello"), await new_worker(database.pool))
    await database.pool.execute("UPDATE workers SET heartbeat_at = now() - interval '60 seconds'")
    sweeper = Sweeper(
        database,
        demo_registry(database),
        interval=1,
        heartbeat_timeout=0.1,
        outage_allowance=no_outages(),
    )
    async with database.transaction() as frozen:
        assert await unattended.may_sweep(frozen)
        assert await sweeper.run_once() == 0, "another process may be at work"
        assert await eventually(sweeper.run_once) == 1
