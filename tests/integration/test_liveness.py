"""Heartbeats: what they prove, and what they find that nobody executes."""

import pytest

from app.dispatch.deafness import Deafness
from app.dispatch.liveness import Liveness
from app.dispatch.sweeper import Sweeper
from app.domain.ids import WorkerId
from app.storage.database import Database
from tests.support.clocks import Clock
from tests.support.stored_runs import admit, some_run
from tests.support.strangers import demo_roster, idle_task_worker, idle_worker, never_deaf

pytestmark = pytest.mark.anyio


async def test_a_run_that_was_claimed_without_anybody_knowing_is_let_go(database: Database) -> None:
    """The commit of its start landed, the reply was lost: only this process could ever find it."""
    worker = idle_worker(database)
    tasks = idle_task_worker(database, worker.me)
    liveness = Liveness(
        database,
        worker,
        tasks,
        role="all",
        interval=1,
        patience=5,
        deafness=never_deaf(),
    )
    await liveness.beat()
    run = some_run("hello")
    await admit(database.hot, run, WorkerId(worker.me))
    await liveness.beat()
    owner = "SELECT owner FROM runs WHERE id = $1"
    assert await database.hot.fetchval(owner, run.id) == worker.me
    await liveness.beat()
    assert await database.hot.fetchval(owner, run.id) is None
    assert await database.hot.fetchval("SELECT count(*) FROM pgq.pgqueuer") == 1


async def test_who_could_not_be_heard_is_not_thought_dead(database: Database) -> None:
    """The database was away for everybody: the first sweep after that takes nobody's runs."""
    worker = idle_worker(database)
    tasks = idle_task_worker(database, worker.me)
    clock = Clock()
    deafness = Deafness(clock, remembered=10)
    liveness = Liveness(
        database, worker, tasks, role="all", interval=1, patience=5, deafness=deafness
    )
    await liveness.beat()
    await admit(database.hot, some_run("hello"), WorkerId(worker.me))
    await database.hot.execute("UPDATE workers SET heartbeat_at = now() - interval '60 seconds'")
    sweeper = Sweeper(
        database, demo_roster(database), interval=1, heartbeat_timeout=10, deafness=deafness
    )
    clock.now += 60
    deafness.missed()
    assert await sweeper.sweep() == 0
    deafness.heard()
    clock.now += 10
    assert await sweeper.sweep() == 0, "its heartbeat is awaited"
    clock.now += 1
    assert await sweeper.sweep() == 1, "and it never came"
