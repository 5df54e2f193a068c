"""Heartbeats: what they prove, and what they find that nobody executes."""

import pytest

from app.dispatch.liveness import Liveness
from app.domain.ids import WorkerId
from app.storage.database import Database
from tests.support.stored_runs import admit, some_run
from tests.support.strangers import idle_task_worker, idle_worker

pytestmark = pytest.mark.anyio


async def test_a_run_that_was_claimed_without_anybody_knowing_is_let_go(database: Database) -> None:
    """The commit of its start landed, the reply was lost: only this process could ever find it."""
    worker = idle_worker(database)
    tasks = idle_task_worker(database, worker.me)
    liveness = Liveness(database, worker, tasks, role="all", interval=1, patience=5)
    await liveness.beat()
    run = some_run("hello")
    await admit(database.hot, run, WorkerId(worker.me))
    await liveness.beat()
    owner = "SELECT owner FROM runs WHERE id = $1"
    assert await database.hot.fetchval(owner, run.id) == worker.me
    await liveness.beat()
    assert await database.hot.fetchval(owner, run.id) is None
    assert await database.hot.fetchval("SELECT count(*) FROM pgq.pgqueuer") == 1
