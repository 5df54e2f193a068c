"""The journey of runs whose owner is gone, only seems gone, or is taken along by one of them."""

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
"""Seconds from a dead owner's time-out until somebody else goes on."""
BUSY = 2.0
"""What a busy machine may add to that."""
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 12
REPLICAS = 2

_AS_USUAL = {name: Settings.model_fields[name].default for name in ("sweep_interval", "queue_poll")}
_SILENCE = """
SELECT extract(epoch FROM now() - w.heartbeat_at)::float8 FROM runs r, workers w
WHERE r.id = $1 AND w.pid = $2 AND r.owner <> w.id
"""


@pytest.fixture(scope="module")
async def there(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """The server that outlives each test; it looks around as seldom as any."""
    async with serving(
        shared_database_url, agents=agents, heartbeat_timeout=TIMEOUT, **_AS_USUAL
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


async def test_a_lost_run_goes_on_in_time(
    here: Server, other: Client, database: RawConnection, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    async with here.client() as client:
        run = await client.start("quick", holding("put", effects))
    await effects.happened()
    here.kill()

    async def silence() -> float | None:
        seconds: float | None = await database.fetchval(_SILENCE, run["run_id"], here.pid)
        return seconds

    taken_after = await eventually(silence)
    assert TIMEOUT <= taken_after <= TIMEOUT + PROMISED + BUSY
    effects.release()
    assert (await other.ended(run["run_id"]))["outcome"] == "succeeded"
    assert len(set(effects.keys)) == 1


async def test_a_worker_that_wakes_up_too_late_writes_nothing(
    here: Server, other: Client, database: RawConnection, tmp_path: Path
) -> None:
    """Frozen over a call, over a message and over a background task, until others have ended all three."""
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
        run_ids = [run["run_id"] for run in runs] + [talking.heard[0]["run_id"]]
        [had_the_task] = behind.pids
        calling.release()
        behind.release()
        for run_id in run_ids:
            assert (await other.ended(run_id))["outcome"] == "succeeded"
            check_run(await other.log(f"/v1/runs/{run_id}"))
        before = await contents(database)
        here.thaw()
        await here.logged("ownership_lost", run_id=run_ids[0])
        await here.logged("ownership_lost", run_id=run_ids[2])
        if had_the_task == here.pid:
            await here.logged("task_was_over", run_id=run_ids[1])
        assert (await client.http.get("/health")).is_success
    assert await contents(database) == before
    assert before["runs"]
    assert len(set(calling.keys)) == len(set(behind.keys)) == 1


# --- a run that takes its worker along ------------------------------------------------------------


class Fleet:
    """Workers that are started again whenever one ends; it is noticed soon."""

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


async def put_losses_to(url: str, run_id: str, losses: int, *, to: str = "runs") -> None:
    """To a run's account, or to its task's."""
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
async def front(postgres: Any, agents: Path) -> AsyncIterator[tuple[str, Client]]:
    """Serves and executes nothing, on a database where nobody else does."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(postgres.fresh())
        server = await stack.enter_async_context(serving(url, agents=agents, role="api"))
        yield url, await stack.enter_async_context(server.client())


async def test_a_run_that_takes_its_workers_along_is_given_up_and_the_others_are_not(
    front: tuple[str, Client], agents: Path, tmp_path: Path
) -> None:
    """Three of its losses are put to its account, to save as many processes."""
    url, client = front
    effects = Effects(tmp_path / "effects")
    fleet = Fleet(url, agents)
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(fleet.keep())
        poison = await client.start("guarded", f'CALL die {{"file": "{effects.file}"}}')
        waiting = await client.settled(poison["run_id"])
        await client.decide(waiting, "approve")
        await effects.happened()
        await put_losses_to(url, poison["run_id"], 3)
        innocent: list[dict[str, Any]] = []

        async def dead_one() -> dict[str, Any] | None:
            if len(effects.lines) > len(innocent):
                innocent.append(await client.start("quick", 'CALL add {"a": 1, "b": 2}'))
            run = await client.run(poison["run_id"])
            return run if run["status"] == "done" else None

        dead = await eventually(dead_one)
        for run in innocent:
            assert (await client.ended(run["run_id"]))["outcome"] == "succeeded"
        retried = await client.post(f"/v1/runs/{poison['run_id']}/retry", {}, 202)
        again = await client.ended(retried["run_id"])
        keeping.cancel()
    assert (dead["outcome"], dead["termination"]["code"]) == ("failed", "worker_lost")
    # A machine that is too busy for heartbeats may cost it a worker or two that it hasn't killed.
    assert 0 < len(innocent) <= len(effects.lines) == fleet.deaths <= 3
    assert len(set(effects.keys)) == 1
    check_run(await client.log(f"/v1/runs/{poison['run_id']}"))

    [found] = (await client.get("/v1/runs", termination_code="worker_lost"))["items"]
    assert found == dead
    why = await client.get(f"/v1/runs/{poison['run_id']}/explain")
    assert why["last_failure"]["code"] == "worker_lost"
    [case] = (await client.get(f"/v1/runs/{poison['run_id']}/audit"))["cases"]
    assert case["executed"]["status"] == "failed"
    assert (again["retry_of"], again["outcome"]) == (poison["run_id"], "succeeded")


async def test_a_task_that_takes_its_workers_along_is_given_up_and_its_neighbours_are_not(
    front: tuple[str, Client], agents: Path, tmp_path: Path
) -> None:
    """A process for each that is suspicious, so that none has to wait until another one has ended."""
    url, client = front
    deaths, task, run = (Effects(tmp_path / name) for name in ("deaths", "task", "run"))
    fleet = Fleet(url, agents, size=3, timeout=TIMEOUT)
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(fleet.keep())
        behind = await client.start("doomed", holding("look", task))
        calling = await client.start("quick", holding("look", run))
        for effects in (task, run):
            await effects.happened()
        await put_losses_to(url, behind["run_id"], 2, to="tasks")
        await put_losses_to(url, calling["run_id"], 2)
        poison = await client.start("doomed", f'CALL die {{"file": "{deaths.file}"}}')
        await deaths.happened()
        await put_losses_to(url, poison["run_id"], 2, to="tasks")
        dead = await client.ended(poison["run_id"])
        [given_up] = (await client.get(f"/v1/runs/{poison['run_id']}/tasks"))["items"]
        lost = await losses_of(url, behind["run_id"], of="tasks")
        for effects in (task, run):
            effects.release()
        for innocent in (behind, calling):
            assert (await client.ended(innocent["run_id"]))["outcome"] == "succeeded"
        [done] = (await client.get(f"/v1/runs/{behind['run_id']}/tasks"))["items"]
        keeping.cancel()
    assert (given_up["status"], given_up["error"]) == (
        "failed",
        "6 workers were lost over this task",
    )
    assert dead["outcome"] == "succeeded"
    assert "6 workers were lost" in dead["final_output"]
    assert 0 < len(deaths.lines) == fleet.deaths <= 4
    assert (done["status"], len(set(task.keys))) == ("completed", 1)
    assert lost <= 3
