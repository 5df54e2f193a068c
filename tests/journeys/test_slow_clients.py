"""The journey of a client that stops reading: nobody waits for it, and it comes back by its last id."""

import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.conditions import eventually
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

MEGABYTES = 12
"""More than the buffers of a connection take on their way."""


@pytest.fixture(scope="module")
async def server(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    async with serving(shared_database_url, agents=agents, stream_send_timeout=1) as running:
        yield running


def never_reading(server: Server, prompt: str) -> socket.socket:
    """A client that starts a run and asks for its stream, and is then away."""
    parts = urlsplit(server.base)
    body = json.dumps(start_body("quick", prompt)).encode()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((parts.hostname, parts.port))
    client.sendall(
        b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    return client


def read_to_the_end(client: socket.socket) -> bytes:
    client.settimeout(20)
    received = bytearray()
    while piece := client.recv(1 << 20):
        received += piece
    return bytes(received)


async def streams_open(client: Client) -> float:
    metrics = (await client.http.get("/metrics")).text
    found = re.search(r"^holdfast_streams_open (\S+)$", metrics, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def test_a_client_that_never_reads_slows_no_run_and_is_cut(
    server: Server, client: Client
) -> None:
    with never_reading(server, f'CALL flood {{"megabytes": {MEGABYTES}}}') as away:

        async def look() -> str | None:
            runs = (await client.get("/v1/runs"))["items"]
            return runs[0]["run_id"] if runs and runs[0]["status"] == "done" else None

        run_id = await eventually(look)
        assert (await client.run(run_id))["outcome"] == "succeeded"

        async def nobody() -> bool:
            return await streams_open(client) == 0

        await eventually(nobody)
        received = read_to_the_end(away)
    assert not received.endswith(b"0\r\n\r\n"), "it was cut, so it must come back"
    assert b"run_finish" not in received
    complete = received[: received.rindex(b"\n\n")]
    last_id = re.findall(rb"^id: (\d+)$", complete, re.MULTILINE)[-1].decode()
    async with client.events(f"/v1/runs/{run_id}", last_id=last_id) as stream:
        rest = await stream.rest()
    log = await client.log(f"/v1/runs/{run_id}")
    assert rest == [event for event in log if event["seq"] > int(last_id)]
