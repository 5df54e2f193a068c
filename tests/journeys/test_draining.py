"""A server that is stopped: it reports draining first, refuses late requests, and exits in time despite open
work."""

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


async def reports_draining(client: Client) -> None:
    async def is_draining() -> bool:
        health = await client.http.get("/health")
        return health.status_code == 503 and health.json()["status"] == "draining"

    await eventually(is_draining)


@asynccontextmanager
async def following(client: Client, path: str) -> AsyncIterator[httpx2.Response]:
    headers = EVENT_STREAM
    async with client.http.stream("GET", f"{path}/events?follow=1", headers=headers) as response:
        assert response.status_code == 200
        yield response


async def is_cut(response: httpx2.Response) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        await response.aread()


async def test_a_server_reports_draining_and_serves_until_the_drain_delay_ends(
    shared_database_url: str, agents: Path, client: Client
) -> None:
    """While draining it still answers; another server executes the runs that it starts."""
    async with (
        serving(shared_database_url, agents=agents, drain_delay=3) as stopping,
        stopping.client() as its_client,
    ):
        waiting = await its_client.settled(
            (await its_client.start("quick", WAITS_FOR_A_PERSON))["id"]
        )
        path = f"/v1/runs/{waiting['id']}"
        async with following(its_client, path) as stream:
            stopping.terminate()
            await reports_draining(its_client)
            answer = await its_client.http.get("/v1/runs")
            assert answer.status_code == 200
            assert answer.headers["connection"] == "close", (
                "a draining server kept a connection open"
            )
            started = await its_client.start("quick", "hello")
            assert (await its_client.settled(started["id"]))["outcome"] == "succeeded"
            assert (await its_client.http.get("/health/live")).status_code == 200
            await is_cut(stream)
        assert await stopping.gone() == 0
        assert "Traceback" not in stopping.log, stopping.log


async def test_a_start_during_the_shutdown_is_refused_as_retryable(
    shared_database_url: str, agents: Path, client: Client
) -> None:
    async with (
        serving(shared_database_url, agents=agents) as stopping,
        stopping.client() as its_client,
    ):
        waiting = await its_client.settled(
            (await its_client.start("quick", WAITS_FOR_A_PERSON))["id"]
        )
        async with following(its_client, f"/v1/runs/{waiting['id']}") as stream:
            reader, writer = await asyncio.open_connection("127.0.0.1", stopping.port)
            body = json.dumps(start_body("quick", "hello")).encode()
            writer.write(
                b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body)
            )
            await writer.drain()
            stopping.terminate()
            await is_cut(stream)
        writer.write(body)
        head, _, problem = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert await stopping.gone() == 0
    assert head.startswith(b"HTTP/1.1 503 ")
    assert re.search(rb"(?i)\r\nretry-after: 1\r\n", head)
    error = json.loads(problem)
    assert (error["code"], error["retryable"]) == ("draining", True)


def never_reading(server: Server, path: str) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", server.port))
    client.sendall(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    return client


async def test_a_server_stops_in_time_with_open_tools_polls_streams_and_clients(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    """With the default grace period, open tools, polls and streams, slow clients, and unread streams."""
    effects = Effects(tmp_path / "effects")
    hold = f'{{"file": "{effects.file}", "hold": true}}'
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        stopping = await enter(
            serving(shared_database_url, agents=agents, handover_grace=DEFAULT_GRACE)
        )
        its_client = await enter(stopping.client())
        flooded = await its_client.start("quick", 'CALL flood {"megabytes": 12}')
        await its_client.settled(flooded["id"])
        for prompt in (f"CALL send {hold}", f"CALL put {hold}", 'CALL doze {"seconds": 60}'):
            held = await its_client.start("busy" if "doze" in prompt else "quick", prompt)
        for tool in ("send", "put"):
            await its_client.start("patient", f"CALL {tool} {hold}")
        await effects.happened(4)
        waiting = await its_client.settled(
            (await its_client.start("quick", WAITS_FOR_A_PERSON))["id"]
        )
        for _ in range(50):
            await enter(following(its_client, f"/v1/runs/{waiting['id']}"))
        for _ in range(5):
            stack.enter_context(never_reading(stopping, f"/v1/runs/{flooded['id']}/events"))
        _, slow = await asyncio.open_connection("127.0.0.1", stopping.port)
        slow.write(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        stack.callback(slow.close)
        async with asyncio.TaskGroup() as tasks:
            polling = tasks.create_task(
                its_client.http.get(f"/v1/runs/{held['id']}", params={"wait": 60})
            )
            # When this is answered, the server has received the requests before it.
            await its_client.get(f"/v1/runs/{held['id']}")
            stopping.terminate()
            code = await stopping.gone()
        assert code == 0, stopping.log
        assert (await polling).json()["status"] == "running"
        assert "Traceback" not in stopping.log, stopping.log
        effects.release()
