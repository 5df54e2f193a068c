"""`holdfast serve --processes`: several processes behind one port, which a supervisor keeps running."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import httpx2
import psutil
import pytest

from tests.support.commands import holdfast
from tests.support.conditions import eventually
from tests.support.event_order import check_run
from tests.support.servers import Server, serving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

PROCESSES = 2
WORDS = "alpha beta gamma delta " * 100


@pytest.fixture(scope="module")
async def server(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    async with serving(shared_database_url, agents=agents, processes=PROCESSES) as running:
        yield running


@pytest.fixture
async def own_server(database_url: str, agents: Path) -> AsyncIterator[Server]:
    """A server that a test stops."""
    async with serving(database_url, agents=agents, processes=PROCESSES) as running:
        yield running


def processes_of(server: Server) -> set[int]:
    return {process.pid for process in psutil.Process(server.pid).children()}


async def executing(server: Server) -> float:
    """How many runs the server executes, from a process that is chosen by chance."""
    async with httpx2.AsyncClient(base_url=server.base) as fresh:
        text = (await fresh.get("/metrics")).text
    return float(re.findall(r"^holdfast_runs_executing (\S+)", text, re.M)[0])


async def owner_of(run_id: str, database_url: str) -> int:
    """The process that executes the run."""
    database = await asyncpg.connect(database_url)
    try:
        found: int = await database.fetchval(
            "SELECT w.pid FROM runs r JOIN workers w ON w.id = r.owner WHERE r.id = $1", run_id
        )
    finally:
        await database.close()
    return found


async def test_the_banner_says_how_many_processes_serve(server: Server) -> None:
    await server.printed(re.compile(rf"{PROCESSES} processes serve"))
    assert server.log.count("Holdfast serves on") == 1
    assert len(processes_of(server)) == PROCESSES


async def test_metrics_are_those_of_all_processes(server: Server) -> None:
    async with server.client() as client:
        runs = [await client.start("talker", WORDS) for _ in range(6)]
        for _ in range(2 * PROCESSES):
            assert await executing(server) == len(runs)
        for run in runs:
            await client.post(f"/v1/runs/{run['id']}/cancel", status=202)


async def test_a_process_that_dies_is_replaced_and_its_run_continues(
    server: Server, shared_database_url: str
) -> None:
    before = processes_of(server)
    async with server.client() as client:
        run = await client.start("talker", WORDS)
        path = f"/v1/runs/{run['id']}"
        async with client.events(path) as stream:
            await stream.until("text_delta", 5)
        dead = await owner_of(run["id"], shared_database_url)
        assert dead in before
        os.kill(dead, signal.SIGKILL)
        assert (await client.ended(run["id"]))["outcome"] == "succeeded"
        check_run(await client.log(path))

    async def is_replaced() -> bool:
        return len(processes_of(server)) == PROCESSES and dead not in processes_of(server)

    await eventually(is_replaced)
    assert before - {dead} < processes_of(server)
    await server.printed(re.compile(rf"server_process_ended.*{dead}"))


async def test_sighup_replaces_all_processes_and_no_request_fails(server: Server) -> None:
    before = processes_of(server)
    answered = 0

    def started(count: int) -> Callable[[], Awaitable[bool]]:
        async def are_started() -> bool:
            return len(processes_of(server) - before) == count

        return are_started

    async def old_ones_have_ended() -> bool:
        return not processes_of(server) & before

    async def request_until(done: asyncio.Event) -> None:
        nonlocal answered
        while not done.is_set():
            async with server.client() as client:
                run = await client.start("quick", "hello")
                assert (await client.settled(run["id"]))["outcome"] == "succeeded"
                answered += 1

    done = asyncio.Event()
    async with asyncio.TaskGroup() as requesting:
        requesting.create_task(request_until(done))
        os.kill(server.pid, signal.SIGHUP)
        for count in range(1, PROCESSES + 1):
            await eventually(started(count))
        await eventually(old_ones_have_ended)
        done.set()
    assert answered > PROCESSES


async def test_sigterm_stops_all_processes(own_server: Server) -> None:
    before = processes_of(own_server)
    own_server.terminate()
    assert await own_server.gone() == 0, own_server.log
    assert not any(map(psutil.pid_exists, before))
    assert "Traceback" not in own_server.log


async def test_processes_stop_when_their_supervisor_is_dead(own_server: Server) -> None:
    before = processes_of(own_server)
    own_server.kill()

    async def all_have_stopped() -> bool:
        return not any(map(psutil.pid_exists, before))

    await eventually(all_have_stopped)


async def test_a_server_that_cannot_start_says_why_once(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_text("[agents.broken]\n")
    refused = await holdfast(
        *("serve", "--port", "0", "--processes", "2", "--agents", str(tmp_path)),
        DATABASE_URL=database_url,
    )
    assert refused.code == 1
    assert refused.err.count("broken") == 1, refused.err


@pytest.mark.parametrize("wrong", ["0", "many"])
async def test_a_wrong_number_is_explained(wrong: str) -> None:
    refused = await holdfast("serve", "--processes", wrong)
    assert refused.code == 1
    assert "HOLDFAST_PROCESSES" in refused.err
