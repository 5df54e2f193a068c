"""Runs whose owner is dead, only seems dead, or is killed by one of its runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.settings import Settings
from app.storage.postgres.connect import RawConnection
from tests.support.conditions import Effects, eventually
from tests.support.contents import contents
from tests.support.event_order import check_run
from tests.support.servers import Server, serving, working
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

TIMEOUT = 2.0
PROMISED = 2.0
"""Seconds from a dead owner's time-out until another worker continues its run."""
BUSY = 2.0
"""Seconds that a busy machine may add to that."""
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 12
REPLICAS = 2

_DEFAULT_INTERVALS = {
    name: Settings.model_fields[name].default for name in ("sweep_interval", "queue_poll")
}
_SECONDS_WITHOUT_HEARTBEAT = """
SELECT extract(epoch FROM now() - w.heartbeat_at)::float8 FROM runs r, workers w
WHERE r.id = $1 AND w.pid = $2 AND r.owner <> w.id
"""


@pytest.fixture(scope="module")
async def there(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """The server that runs through all tests, with the default polling intervals."""
    async with serving(
        shared_database_url, agents=agents, heartbeat_timeout=TIMEOUT, **_DEFAULT_INTERVALS
    ) as running:
        yield running


@pytest.fixture
async def other(there: Server) -> AsyncIterator[Client]:
    async with there.client() as client:
        yield client


@pytest.fixture
async def database(shared_database_url: str) -> AsyncIterator[RawConnection]:
    connection = await asyncpg.connect(shared_database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def here(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    async with serving(
        shared_database_url, agents=agents, heartbeat_timeout=TIMEOUT, log_json=True
    ) as running:
        yield running


def holding(tool: str, effects: Effects) -> str:
    return f'CALL {tool} {{"file": "{effects.file}", "hold": true}}'


async def test_a_lost_run_is_taken_over_in_time(
    here: Server, other: Client, database: RawConnection, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    async with here.client() as client:
        run = await client.start("quick", holding("put", effects))
    await effects.happened()
    here.kill()

    async def seconds_without_heartbeat() -> float | None:
        seconds: float | None = await database.fetchval(
            _SECONDS_WITHOUT_HEARTBEAT, run["id"], here.pid
        )
        return seconds

    taken_after = await eventually(seconds_without_heartbeat)
    assert TIMEOUT <= taken_after <= TIMEOUT + PROMISED + BUSY
    effects.release()
    assert (await other.ended(run["id"]))["outcome"] == "succeeded"
    assert len(set(effects.keys)) == 1


async def test_a_worker_that_lost_its_runs_while_frozen_writes_nothing(
    here: Server, other: Client, database: RawConnection, tmp_path: Path
) -> None:
    """The worker is frozen during a call, a message and a task, until other workers have finished them."""
    calling, behind = Effects(tmp_path / "calling"), Effects(tmp_path / "behind")
    async with here.client() as client, AsyncExitStack() as stack:
        runs = [
            await client.start("quick", holding("put", calling)),
            await client.start("patient", holding("put", behind)),
        ]
        await calling.happened()
        await behind.happened()
        talking = await stack.enter_async_context(client.start_stream("talker", WORDS))
        await talking.until("text_delta")
        here.freeze()
        run_ids = [run["id"] for run in runs] + [talking.received[0]["run_id"]]
        [task_owner] = behind.pids
        calling.release()
        behind.release()
        for run_id in run_ids:
            assert (await other.ended(run_id))["outcome"] == "succeeded"
            check_run(await other.log(f"/v1/runs/{run_id}"))
        before = await contents(database)
        here.thaw()
        await here.logged("ownership_lost", run_id=run_ids[0])
        await here.logged("ownership_lost", run_id=run_ids[2])
        if task_owner == here.pid:
            await here.logged("task_already_finished", run_id=run_ids[1])

        async def is_healthy() -> bool:
            return (await client.http.get("/health")).is_success

        await eventually(is_healthy)
    assert await contents(database) == before
    assert before["runs"]
    assert len(set(calling.keys)) == len(set(behind.keys)) == 1


# --- a run that kills its worker ------------------------------------------------------------------


class Fleet:
    """Workers that are restarted whenever one ends, with a short heartbeat time-out."""

    def __init__(
        self, database_url: str, agents: Path, size: int = REPLICAS, timeout: float = TIMEOUT / 2
    ) -> None:
        self._database_url = database_url
        self._agents = agents
        self._size = size
        self._timeout = timeout
        self.deaths = 0

    async def keep(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._size):
                group.create_task(self._keep_one())

    async def _keep_one(self) -> None:
        while True:
            async with working(
                self._database_url, agents=self._agents, heartbeat_timeout=self._timeout
            ) as worker:
                await worker.process.wait()
            self.deaths += 1


async def add_losses(url: str, run_id: str, losses: int, *, to: str = "runs") -> None:
    """Add losses to a run, or to its task."""
    connection = await asyncpg.connect(url)
    try:
        name = "id" if to == "runs" else "run_id"
        await connection.execute(
            f"UPDATE {to} SET losses = losses + $2 WHERE {name} = $1", run_id, losses
        )
    finally:
        await connection.close()


async def losses_of(url: str, run_id: str, *, of: str = "runs") -> int:
    connection = await asyncpg.connect(url)
    try:
        name = "id" if of == "runs" else "run_id"
        found: int = await connection.fetchval(f"SELECT losses FROM {of} WHERE {name} = $1", run_id)
        return found
    finally:
        await connection.close()


@pytest.fixture
async def api_server(postgres: Any, agents: Path) -> AsyncIterator[tuple[str, Client]]:
    """An API server without workers, on its own database."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(postgres.fresh())
        server = await stack.enter_async_context(serving(url, agents=agents, role="api"))
        yield url, await stack.enter_async_context(server.client())


async def test_a_run_that_kills_its_workers_fails_and_other_runs_succeed(
    api_server: tuple[str, Client], agents: Path, tmp_path: Path
) -> None:
    """Three losses are added in the database, to save as many processes."""
    url, client = api_server
    effects = Effects(tmp_path / "effects")
    fleet = Fleet(url, agents)
    async with asyncio.TaskGroup() as group:
        restarting = group.create_task(fleet.keep())
        poison = await client.start("guarded", f'CALL die {{"file": "{effects.file}"}}')
        waiting = await client.settled(poison["id"])
        await client.decide(waiting, "approve")
        await effects.happened()
        await add_losses(url, poison["id"], 3)
        unaffected: list[dict[str, Any]] = []

        async def finished_poison_run() -> dict[str, Any] | None:
            if len(effects.lines) > len(unaffected):
                unaffected.append(await client.start("quick", 'CALL add {"a": 1, "b": 2}'))
            run = await client.run(poison["id"])
            return run if run["status"] == "done" else None

        dead = await eventually(finished_poison_run)
        for run in unaffected:
            assert (await client.ended(run["id"]))["outcome"] == "succeeded"
        retried = await client.post(f"/v1/runs/{poison['id']}/retry", {}, 202)
        again = await client.ended(retried["id"])
        restarting.cancel()
    assert (dead["outcome"], dead["termination"]["code"]) == ("failed", "worker_lost")
    # On a busy machine, missed heartbeats may add a loss or two.
    assert 0 < len(unaffected) <= len(effects.lines) == fleet.deaths <= 3
    assert len(set(effects.keys)) == 1
    check_run(await client.log(f"/v1/runs/{poison['id']}"))

    [found] = (await client.get("/v1/runs", termination_code="worker_lost"))["items"]
    assert found == dead
    why = await client.get(f"/v1/runs/{poison['id']}/explain")
    assert why["last_failure"]["code"] == "worker_lost"
    [case] = (await client.get(f"/v1/runs/{poison['id']}/audit"))["items"]
    assert case["executed"]["outcome"] == "failed"
    assert (again["retry_of_run_id"], again["outcome"]) == (poison["id"], "succeeded")


async def test_a_task_that_kills_its_workers_fails_and_other_tasks_succeed(
    api_server: tuple[str, Client], agents: Path, tmp_path: Path
) -> None:
    """One process for each suspect, so that no suspect waits for another one."""
    url, client = api_server
    deaths, task, run = (Effects(tmp_path / name) for name in ("deaths", "task", "run"))
    fleet = Fleet(url, agents, size=3, timeout=TIMEOUT)
    async with asyncio.TaskGroup() as group:
        restarting = group.create_task(fleet.keep())
        behind = await client.start("doomed", holding("look", task))
        calling = await client.start("quick", holding("look", run))
        for effects in (task, run):
            await effects.happened()
        await add_losses(url, behind["id"], 2, to="tasks")
        await add_losses(url, calling["id"], 2)
        poison = await client.start("doomed", f'CALL die {{"file": "{deaths.file}"}}')
        await deaths.happened()
        await add_losses(url, poison["id"], 2, to="tasks")
        dead = await client.ended(poison["id"])
        [given_up] = (await client.get(f"/v1/runs/{poison['id']}/tasks"))["items"]
        lost = await losses_of(url, behind["id"], of="tasks")
        for effects in (task, run):
            effects.release()
        for unaffected in (behind, calling):
            assert (await client.ended(unaffected["id"]))["outcome"] == "succeeded"
        [done] = (await client.get(f"/v1/runs/{behind['id']}/tasks"))["items"]
        restarting.cancel()
    assert (given_up["outcome"], given_up["error"]) == (
        "failed",
        "6 workers were lost over this task",
    )
    assert dead["outcome"] == "succeeded"
    assert "6 workers were lost" in dead["final_output"]
    assert 0 < len(deaths.lines) == fleet.deaths <= 4
    assert (done["outcome"], len(set(task.keys))) == ("succeeded", 1)
    assert lost <= 3
