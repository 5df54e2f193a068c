"""Streams through nginx over time: silence, proxies that come and go, and ids that are no longer kept."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.conditions import eventually
from tests.support.cutters import cutting
from tests.support.old_runs import let_it_have_ended_long_ago
from tests.support.readers import Heard
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, Client, Event, text_of
from tests.system.nginx import Nginx, proxying
from tests.system.readers import READERS, node

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

MANY_WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 60
TELLING = [name for name in READERS if name != "curl"]
"""Those that tell what they hear as they hear it."""
HEARTBEAT = 5.0
"""Seconds; what the README promises, and what a server has that nobody has told otherwise."""


@pytest.fixture
async def nginx(server: Server, tmp_path: Path) -> AsyncIterator[Nginx]:
    async with proxying(Nginx(tmp_path / "nginx", [server.port])) as running:
        yield running


async def heard_so_much(heard: list[Event], count: int) -> None:
    async def look() -> bool:
        return len(heard) >= count

    await eventually(look)


async def test_silence_is_broken_often_enough(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    """A proxy that gives up on silence after six seconds never has to."""
    impatient = "proxy_read_timeout 6s;"
    async with (
        serving(shared_database_url, agents=agents, stream_heartbeat=HEARTBEAT) as server,
        proxying(Nginx(tmp_path / "nginx", [server.port], proxying=impatient)) as nginx,
        Client(nginx.base) as client,
    ):
        run = await client.start("quick", 'CALL risky {"what": "it"}')
        await client.settled(run["run_id"])
        path = f"/v1/runs/{run['run_id']}/events"
        heartbeats = 0
        url = f"{path}?from=now&follow=1"
        async with client.http.stream("GET", url, headers=EVENT_STREAM) as stream:
            async for line in stream.aiter_lines():
                heartbeats += line.startswith((":", "retry"))
                if heartbeats == 4:
                    break
    assert heartbeats == 4, "the proxy has cut the stream"


@pytest.mark.parametrize("reader", TELLING)
async def test_a_reload_of_nginx_breaks_no_stream(
    client: Client, nginx: Nginx, reader: str
) -> None:
    started = await client.start("talker", MANY_WORDS)
    path = f"/v1/runs/{started['run_id']}"
    heard = Heard()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(READERS[reader](f"{nginx.base}{path}/events", heard))
        await heard_so_much(heard.events, 20)
        await nginx.reload()
    assert heard.events == await client.log(path)
    assert heard.connections == 1


@pytest.mark.parametrize("reader", TELLING)
async def test_a_restart_of_nginx_is_survived(client: Client, nginx: Nginx, reader: str) -> None:
    started = await client.start("talker", MANY_WORDS)
    path = f"/v1/runs/{started['run_id']}"
    heard = Heard()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(READERS[reader](f"{nginx.base}{path}/events", heard))
        await heard_so_much(heard.events, 20)
        await nginx.stop()
        await nginx.start()
    assert heard.events == await client.log(path)
    assert heard.connections == 2


async def test_a_client_whose_id_is_gone_builds_anew(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    """It has slept while the run went on, ended, and grew old."""
    keen = {"retention_interval": 0.2, "delta_retention": 3600}
    async with (
        serving(shared_database_url, agents=agents, **keen) as server,
        server.client() as client,
        proxying(Nginx(tmp_path / "nginx", [server.port])) as nginx,
        cutting(nginx.port) as cutter,
    ):
        started = await client.start("talker", MANY_WORDS)
        path = f"/v1/runs/{started['run_id']}"
        async with node("rebuilding.mjs", f"{cutter.base}{path}") as process:
            assert process.stdout is not None
            while json.loads(await process.stdout.readline())["id"] != "20":
                pass
            cutter.shut()
            record = await client.settled(started["run_id"])
            whole = await client.log(path)
            await let_it_have_ended_long_ago(shared_database_url, started["run_id"])

            async def is_merged() -> bool:
                storage = await client.get(f"/v1/threads/{started['thread_id']}/storage")
                return bool(storage["saved"]["rows"])

            await eventually(is_merged)
            cutter.open_again()
            *events, end = [json.loads(line) async for line in process.stdout]
        assert (end["status"], end["rebuilt"]) == (204, 1)
        assert end["text"] == record["final_output"]
        assert len(events) < len(whole) / 2, "it has heard to the end, and had nothing to rebuild"
        merged = await client.log(path)
        assert len(merged) < 10
        assert text_of(merged) == record["final_output"]
