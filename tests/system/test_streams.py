"""Streams through nginx: heartbeats, reloads and restarts of nginx, and ids of merged events."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.conditions import eventually
from tests.support.cutters import cutting
from tests.support.old_runs import backdate_end
from tests.support.readers import Received
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, Client, Event, text_of
from tests.support.thread_sizes import merged_rows
from tests.system.nginx import Nginx, proxying
from tests.system.readers import READERS, node

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

MANY_WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 60
LIVE_READERS = [name for name in READERS if name != "curl"]
"""Readers that report each event when it arrives."""
HEARTBEAT = 5.0
"""Seconds; the documented default."""


@pytest.fixture
async def nginx(server: Server, tmp_path: Path) -> AsyncIterator[Nginx]:
    async with proxying(Nginx(tmp_path / "nginx", [server.port])) as running:
        yield running


async def has_received(received: list[Event], count: int) -> None:
    async def enough() -> bool:
        return len(received) >= count

    await eventually(enough)


async def test_heartbeats_keep_an_idle_stream_open_through_a_proxy(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    """A proxy that closes idle streams after six seconds keeps this one open."""
    short_timeout = "proxy_read_timeout 6s;"
    async with (
        serving(shared_database_url, agents=agents, stream_heartbeat=HEARTBEAT) as server,
        proxying(Nginx(tmp_path / "nginx", [server.port], proxying=short_timeout)) as nginx,
        Client(nginx.base) as client,
    ):
        run = await client.start("quick", 'CALL risky {"what": "it"}')
        await client.settled(run["id"])
        path = f"/v1/runs/{run['id']}/events"
        heartbeats = 0
        url = f"{path}?from=now&follow=1"
        async with client.http.stream("GET", url, headers=EVENT_STREAM) as stream:
            async for line in stream.aiter_lines():
                heartbeats += line.startswith((":", "retry"))
                if heartbeats == 4:
                    break
    assert heartbeats == 4, "the proxy has cut the stream"


@pytest.mark.parametrize("reader", LIVE_READERS)
async def test_a_reload_of_nginx_breaks_no_stream(
    client: Client, nginx: Nginx, reader: str
) -> None:
    started = await client.start("talker", MANY_WORDS)
    path = f"/v1/runs/{started['id']}"
    received = Received()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            READERS[reader](f"{nginx.base}{path}/events?include=state,trace", received)
        )
        await has_received(received.events, 20)
        await nginx.reload()
    assert received.events == await client.log(path)
    assert received.connections == 1


@pytest.mark.parametrize("reader", LIVE_READERS)
async def test_readers_survive_a_restart_of_nginx(
    client: Client, nginx: Nginx, reader: str
) -> None:
    started = await client.start("talker", MANY_WORDS)
    path = f"/v1/runs/{started['id']}"
    received = Received()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            READERS[reader](f"{nginx.base}{path}/events?include=state,trace", received)
        )
        await has_received(received.events, 20)
        await nginx.stop()
        await nginx.start()
    assert received.events == await client.log(path)
    assert received.connections == 2


async def test_a_client_whose_event_id_was_merged_rebuilds_its_state(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    """The client was cut off while the run ended and its text deltas were merged."""
    fast_retention = {"retention_interval": 0.2, "delta_retention": 3600}
    async with (
        serving(shared_database_url, agents=agents, **fast_retention) as server,
        server.client() as client,
        proxying(Nginx(tmp_path / "nginx", [server.port])) as nginx,
        cutting(nginx.port) as cutter,
    ):
        started = await client.start("talker", MANY_WORDS)
        path = f"/v1/runs/{started['id']}"
        async with node("rebuilding.mjs", f"{cutter.base}{path}") as process:
            assert process.stdout is not None
            while json.loads(await process.stdout.readline())["id"] != "20":
                pass
            cutter.shut()
            record = await client.settled(started["id"])
            whole = await client.log(path)
            await backdate_end(shared_database_url, started["id"])

            async def is_merged() -> bool:
                return await merged_rows(shared_database_url, started["thread_id"]) > 0

            await eventually(is_merged)
            cutter.open_again()
            *events, end = [json.loads(line) async for line in process.stdout]
        assert (end["status"], end["rebuilt"]) == (204, 1)
        assert end["text"] == record["final_output"]
        assert len(events) < len(whole) / 2, (
            "the client received every event and had nothing to rebuild"
        )
        merged = await client.log(path)
        assert len(merged) <= 10
        assert text_of(merged) == record["final_output"]
