"""Streams through nginx over time: silence, proxies that come and go, and ids that are no longer kept."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import asyncpg
import pytest

from tests.support.conditions import eventually
from tests.support.cutters import cutting
from tests.support.readers import Heard
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, Client, Event, text_of
from tests.system.nginx import Nginx, proxying
from tests.system.readers import READERS, node

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HEARD_BESIDES = 30
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
        arrived: list[float] = []
        url = f"{path}?from=now&follow=1"
        async with client.http.stream("GET", url, headers=EVENT_STREAM) as stream:
            async for line in stream.aiter_lines():
                if line.startswith((":", "retry")):
                    arrived.append(monotonic())
                if len(arrived) == 4:
                    break
    gaps = [later - sooner for sooner, later in zip(arrived, arrived[1:], strict=False)]
    assert max(gaps) < HEARTBEAT + 0.5, gaps


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


async def merge(database_url: str, run_id: str, first: int, last: int) -> None:
    """What is done to the deltas of old runs: one row stands for a stretch, under its last id."""
    database = await asyncpg.connect(database_url)
    try:
        async with database.transaction():
            merged = await database.fetchval(
                "UPDATE events AS last SET from_seq = $2, body = (SELECT jsonb_build_object('delta', "
                "string_agg(body::jsonb->>'delta', '' ORDER BY seq))::text FROM events "
                "WHERE run_id = $1 AND seq BETWEEN $2 AND $3) "
                "WHERE run_id = $1 AND seq = $3 AND event_type = 'text_delta' RETURNING seq",
                *(run_id, first, last),
            )
            assert merged == last
            await database.execute(
                "DELETE FROM events WHERE run_id = $1 AND seq >= $2 AND seq < $3",
                *(run_id, first, last),
            )
    finally:
        await database.close()


async def test_a_client_whose_id_is_gone_builds_anew_and_goes_on(
    client: Client, shared_database_url: str, nginx: Nginx
) -> None:
    started = await client.start("talker", MANY_WORDS)
    run_id = started["run_id"]
    path = f"/v1/runs/{run_id}"
    async with cutting(nginx.port) as cutter:
        async with node("rebuilding.mjs", f"{cutter.base}{path}") as process:
            assert process.stdout is not None
            ids: list[int] = []
            while len(ids) < 20:
                ids.append(int(json.loads(await process.stdout.readline())["id"]))
            cutter.shut()
            # Some more may have been heard than we have read.
            merged_to = ids[-1] + HEARD_BESIDES

            async def has_gone_on() -> bool:
                page = await client.get(f"{path}/events", limit=500)
                return bool(page["items"][-1]["seq"] > merged_to)

            await eventually(has_gone_on)
            await merge(shared_database_url, run_id, ids[-5], merged_to)
            cutter.open_again()
            said = [json.loads(line) async for line in process.stdout]
    *events, end = said
    record = await client.settled(run_id)
    assert (end["status"], end["rebuilt"]) == (204, 1)
    assert end["text"] == record["final_output"]
    after = [int(event["id"]) for event in events if int(event["id"]) > merged_to]
    assert after == list(range(after[0], after[-1] + 1))
    assert all(int(event["id"]) < merged_to for event in events[: -len(after)]), "heard before"
    assert text_of(await client.log(path)) == record["final_output"]
