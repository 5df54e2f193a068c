"""A cancel settles though the run's owner is killed, frozen or blocked, or no slot is free."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.storage.postgres.connect import RawConnection
from tests.support.conditions import Effects, eventually
from tests.support.contents import contents
from tests.support.event_order import check_run
from tests.support.servers import Server, serving
from tests.support.streams import Client
from tests.trials.test_lost_owners import add_losses

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

TIMEOUT = 2.0
SETTLE_TIMEOUT_SECONDS = 3.5 * TIMEOUT
"""From the cancel request, or from the fault if that came later: the heartbeat time-out and 5 seconds."""
SUSPICIOUS_LOSSES = 3

_SECONDS = """
SELECT extract(epoch FROM finished_at - greatest(cancel_requested_at, $2::timestamptz))::float8
FROM runs WHERE id = $1
"""


@pytest.fixture
async def database(shared_database_url: str) -> AsyncIterator[RawConnection]:
    connection = await asyncpg.connect(shared_database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def replicas(shared_database_url: str, agents: Path) -> AsyncIterator["Replicas"]:
    async with AsyncExitStack() as stack:
        yield Replicas(stack, shared_database_url, agents)


class Replicas:
    """Servers of one database, and a client of each."""

    def __init__(self, stack: AsyncExitStack, url: str, agents: Path) -> None:
        self._stack = stack
        self._url = url
        self._agents = agents

    async def add(self, **settings: object) -> tuple[Server, Client]:
        settings = {"heartbeat_timeout": TIMEOUT, "log_json": True} | settings
        server = await self._stack.enter_async_context(
            serving(self._url, agents=self._agents, **settings)
        )
        return server, await self._stack.enter_async_context(server.client())


async def held_run(client: Client, effects: Effects, tool: str = "send") -> dict[str, Any]:
    """A run in the middle of a call, executed by the server of `client`."""
    run = await client.start("quick", effects.held(tool))
    await effects.happened()
    return run


async def blocking_run(client: Client, effects: Effects) -> dict[str, Any]:
    """A run whose call blocks the event loop of its process."""
    run = await client.start("quick", f'CALL block {{"file": "{effects.file}"}}')
    await effects.happened()
    return run


async def cancel(client: Client, *runs: dict[str, Any]) -> None:
    for run in runs:
        answer = await client.http.post(f"/v1/runs/{run['id']}/cancel")
        assert answer.status_code in (200, 202), answer.text


async def settles_in_time(
    client: Client, database: RawConnection, *runs: dict[str, Any], since: datetime
) -> None:
    """The runs end in time, each with one clean end."""
    for run in runs:
        assert (await client.ended(run["id"]))["outcome"] == "cancelled"
        seconds = await database.fetchval(_SECONDS, run["id"], since)
        assert seconds <= SETTLE_TIMEOUT_SECONDS, f"{seconds / TIMEOUT:.1f} heartbeat time-outs"
        check_run(await client.log(f"/v1/runs/{run['id']}"))


async def now(database: RawConnection) -> datetime:
    at: datetime = await database.fetchval("SELECT now()")
    return at


async def test_a_cancel_settles_though_the_owner_is_killed(
    replicas: Replicas, database: RawConnection, tmp_path: Path
) -> None:
    owner, lost = await replicas.add()
    _, client = await replicas.add()
    run = await held_run(lost, Effects(tmp_path / "effects"))
    since = await now(database)
    owner.kill()
    await cancel(client, run)
    await settles_in_time(client, database, run, since=since)
    following = await client.start("quick", "go on", thread_id=run["thread_id"])
    assert (await client.settled(following["id"]))["outcome"] == "succeeded"


async def test_a_cancel_settles_though_the_owner_is_frozen(
    replicas: Replicas, database: RawConnection, tmp_path: Path
) -> None:
    owner, lost = await replicas.add()
    _, client = await replicas.add()
    run = await held_run(lost, Effects(tmp_path / "effects"))
    since = await now(database)
    owner.freeze()
    await cancel(client, run)
    await settles_in_time(client, database, run, since=since)
    before = await contents(database)
    owner.thaw()
    await owner.logged("ownership_lost", run_id=run["id"])
    assert await contents(database) == before


async def test_cancels_settle_though_the_owners_event_loop_is_blocked(
    replicas: Replicas, database: RawConnection, tmp_path: Path
) -> None:
    """Both the run that blocks the loop and a run that only shares its process are cancelled."""
    held, blocking = Effects(tmp_path / "held"), Effects(tmp_path / "blocking")
    owner, lost = await replicas.add()
    _, client = await replicas.add()
    runs = [await held_run(lost, held), await blocking_run(lost, blocking)]
    since = await now(database)
    await cancel(client, *runs)
    await settles_in_time(client, database, *runs, since=since)
    for run in runs:
        await owner.logged("cancelled_run_released", run_id=run["id"])
    before = await contents(database)
    blocking.release()
    for run in runs:
        await owner.logged("ownership_lost", run_id=run["id"])
    assert await contents(database) == before
    assert len(held.lines) == len(blocking.lines) == 1


async def test_a_blocked_process_keeps_its_runs_that_are_not_cancelled(
    replicas: Replicas, database: RawConnection, tmp_path: Path
) -> None:
    held, blocking = Effects(tmp_path / "held"), Effects(tmp_path / "blocking")
    owner, lost = await replicas.add()
    _, client = await replicas.add()
    kept = await held_run(lost, held)
    cancelled = await blocking_run(lost, blocking)
    await cancel(client, cancelled)
    await owner.logged("cancelled_run_released", run_id=cancelled["id"])
    blocking.release()
    held.release()
    assert (await client.ended(kept["id"]))["outcome"] == "succeeded"
    assert (await client.ended(cancelled["id"]))["outcome"] == "cancelled"
    attempt = "SELECT attempt FROM runs WHERE id = $1"
    assert await database.fetchval(attempt, kept["id"]) == 1


async def test_cancels_settle_under_all_faults_at_once(
    replicas: Replicas, database: RawConnection, tmp_path: Path
) -> None:
    """One process is killed, one is frozen and one is blocked; the last one ends the runs of all."""
    effects = {name: Effects(tmp_path / name) for name in ("killed", "frozen", "blocked")}
    owners = {name: await replicas.add() for name in effects}
    _, client = await replicas.add()
    runs = [await held_run(owners[name][1], effects[name]) for name in effects]
    blocking = Effects(tmp_path / "blocking")
    runs.append(await blocking_run(owners["blocked"][1], blocking))
    since = await now(database)
    owners["killed"][0].kill()
    owners["frozen"][0].freeze()
    await cancel(client, *runs)
    await settles_in_time(client, database, *runs, since=since)


async def test_a_cancel_settles_though_no_slot_is_free(
    replicas: Replicas, database: RawConnection, tmp_path: Path
) -> None:
    owner, lost = await replicas.add(concurrency=1)
    _, client = await replicas.add(concurrency=1)
    run = await held_run(lost, Effects(tmp_path / "lost"))
    held = Effects(tmp_path / "held")
    busy = await held_run(client, held)
    waiting = [await client.start("quick", "wait for a slot") for _ in range(30)]
    since = await now(database)
    owner.kill()
    await cancel(client, run)
    await settles_in_time(client, database, run, since=since)
    assert (await client.run(busy["id"]))["status"] == "running"
    held.release()
    for one in (busy, *waiting):
        assert (await client.ended(one["id"]))["outcome"] == "succeeded"


async def test_a_cancel_settles_while_the_worker_executes_a_suspect(
    replicas: Replicas, database: RawConnection, shared_database_url: str, tmp_path: Path
) -> None:
    """Of two runs that lost several workers, a process executes one and ends the other."""
    owner, lost = await replicas.add()
    _, client = await replicas.add()
    effects = [Effects(tmp_path / name) for name in ("one", "two")]
    runs = [await held_run(lost, each, "look") for each in effects]
    for run in runs:
        await add_losses(shared_database_url, run["id"], SUSPICIOUS_LOSSES)
    owner.kill()

    async def executed() -> list[int]:
        return [number for number, each in enumerate(effects) if len(each.lines) > 1]

    [number] = await eventually(executed)
    suspect, other = runs[number], runs[1 - number]
    assert (await client.run(suspect["id"]))["status"] == "running"
    since = await now(database)
    await cancel(client, other)
    await settles_in_time(client, database, other, since=since)
    assert len(effects[1 - number].lines) == 1
    effects[number].release()
    assert (await client.ended(suspect["id"]))["outcome"] == "succeeded"
