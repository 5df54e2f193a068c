"""A client disconnects in the middle of a stream: the stream ends without an error."""

import json
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.journeys.test_slow_clients import streams_open
from tests.support.conditions import eventually
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

_NEXT_REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
async def server(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    async with serving(shared_database_url, agents=agents) as running:
        yield running


def stream_of_a_new_run(server: Server, and_then: bytes) -> socket.socket:
    parts = urlsplit(server.base)
    body = json.dumps(start_body("endless", "talk")).encode()
    client = socket.create_connection((parts.hostname, parts.port))
    client.settimeout(20)
    client.sendall(
        b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b%b"
        % (len(body), body, and_then)
    )
    received = b""
    while b"text_delta" not in received:
        received += client.recv(1 << 16)
    return client


def leave(client: socket.socket, *, with_reset: bool) -> None:
    if with_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("with_reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("and_then", [b"", _NEXT_REQUEST], ids=["alone", "pipelined"])
async def test_a_stream_ends_quietly_when_its_client_disconnects(
    server: Server, client: Client, with_reset: bool, and_then: bytes
) -> None:
    """Also if the client has already sent its next request on the same connection."""
    printed = len(server.log)
    leave(stream_of_a_new_run(server, and_then), with_reset=with_reset)

    async def no_stream_is_open() -> bool:
        return await streams_open(client) == 0

    await eventually(no_stream_is_open)
    [run] = [one for one in (await client.get("/v1/runs"))["items"] if one["status"] == "running"]
    response = await client.http.post(f"/v1/runs/{run['id']}/cancel", params={"wait": 20})
    assert response.json()["outcome"] == "cancelled"
    assert "request_broken" not in server.log[printed:]
    assert "Traceback" not in server.log[printed:], server.log[printed:]
