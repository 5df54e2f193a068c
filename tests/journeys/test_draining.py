"""The journey of a server that is told to go: it says so first, refuses what comes too late, and is gone in
time whatever hangs on it."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.conditions import Effects, eventually
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, Client, start_body

pytestmark = pytest.mark.anyio

DEFAULT_GRACE = 5.0
WAITS_FOR_A_PERSON = 'CALL risky {"what": "it"}'


async def says_that_it_drains(client: Client) -> None:
    async def look() -> bool:
        health = await client.http.get("/health")
        return health.status_code == 503 and health.json()["status"] == "draining"

    await eventually(look)


@asynccontextmanager
async def following(client: Client, path: str) -> AsyncIterator[httpx2.Response]:
    headers = EVENT_STREAM
    async with client.http.stream("GET", f"{path}/events?follow=1", headers=headers) as response:
        assert response.status_code == 200
        yield response


async def is_cut(response: httpx2.Response) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        await response.aread()


async def test_a_server_says_that_it_goes_before_it_does(
    shared_database_url: str, agents: Path, client: Client
) -> None:
    """Meanwhile it answers as before; what is started there is executed elsewhere."""
    async with (
        serving(shared_database_url, agents=agents, drain_delay=3) as leaving,
        leaving.client() as theirs,
    ):
        waiting = await theirs.settled((await theirs.start("quick", WAITS_FOR_A_PERSON))["run_id"])
        path = f"/v1/runs/{waiting['run_id']}"
        async with following(theirs, path) as stream:
            leaving.terminate()
            await says_that_it_drains(theirs)
            answer = await theirs.http.get("/v1/runs")
            assert answer.status_code == 200
            assert answer.headers["connection"] == "close", "they are to ask elsewhere next time"
            started = await theirs.start("quick", "hello")
            assert (await theirs.settled(started["run_id"]))["outcome"] == "succeeded"
            assert (await theirs.http.get("/health/live")).status_code == 200
            await is_cut(stream)
        assert await leaving.gone() == 0
        assert "Traceback" not in leaving.log, leaving.log


async def test_a_start_that_comes_too_late_is_refused_and_may_be_sent_again(
    shared_database_url: str, agents: Path, client: Client
) -> None:
    async with (
        serving(shared_database_url, agents=agents) as leaving,
        leaving.client() as theirs,
    ):
        waiting = await theirs.settled((await theirs.start("quick", WAITS_FOR_A_PERSON))["run_id"])
        async with following(theirs, f"/v1/runs/{waiting['run_id']}") as stream:
            late, early = await asyncio.open_connection("127.0.0.1", leaving.port)
            body = json.dumps(start_body("quick", "hello")).encode()
            early.write(
                b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body)
            )
            await early.drain()
            leaving.terminate()
            await is_cut(stream)
        early.write(body)
        head, _, problem = (await late.read()).partition(b"\r\n\r\n")
        early.close()
        assert await leaving.gone() == 0
    assert head.startswith(b"HTTP/1.1 503 ")
    assert re.search(rb"(?i)\r\nretry-after: 1\r\n", head)
    said = json.loads(problem)
    assert (said["code"], said["retryable"]) == ("draining", True)


def never_reading(server: Server, path: str) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", server.port))
    client.sendall(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    return client


async def test_whatever_hangs_on_a_server_it_is_gone_in_time(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    """With the grace that it has by default: tools that go on, polls, streams, deaf and slow clients."""
    effects = Effects(tmp_path / "effects")
    hold = f'{{"file": "{effects.file}", "hold": true}}'
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        leaving = await enter(
            serving(shared_database_url, agents=agents, handover_grace=DEFAULT_GRACE)
        )
        theirs = await enter(leaving.client())
        flooded = await theirs.start("quick", 'CALL flood {"megabytes": 12}')
        await theirs.settled(flooded["run_id"])
        for prompt in (f"CALL send {hold}", f"CALL put {hold}", 'CALL doze {"seconds": 60}'):
            held = await theirs.start("busy" if "doze" in prompt else "quick", prompt)
        for tool in ("send", "put"):
            await theirs.start("patient", f"CALL {tool} {hold}")
        await effects.happened(4)
        waiting = await theirs.settled((await theirs.start("quick", WAITS_FOR_A_PERSON))["run_id"])
        for _ in range(50):
            await enter(following(theirs, f"/v1/runs/{waiting['run_id']}"))
        for _ in range(5):
            stack.enter_context(never_reading(leaving, f"/v1/runs/{flooded['run_id']}/events"))
        _, slow = await asyncio.open_connection("127.0.0.1", leaving.port)
        slow.write(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        stack.callback(slow.close)
        async with asyncio.TaskGroup() as tasks:
            polling = tasks.create_task(
                theirs.http.get(f"/v1/runs/{held['run_id']}", params={"wait": 60})
            )
            # Whatever was asked before this has been heard by the time it is answered.
            await theirs.get(f"/v1/runs/{held['run_id']}")
            leaving.terminate()
            code = await leaving.gone()
        assert code == 0, leaving.log
        assert (await polling).json()["status"] == "running"
        assert "Traceback" not in leaving.log, leaving.log
        effects.release()
