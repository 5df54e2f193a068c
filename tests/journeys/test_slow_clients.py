"""A client that stops reading delays no run, and resumes by its last id."""

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
"""More than the buffers of a connection hold."""


@pytest.fixture(scope="module")
async def server(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    async with serving(shared_database_url, agents=agents, stream_send_timeout=1) as running:
        yield running


def never_reading(server: Server, prompt: str) -> socket.socket:
    """A client that starts a run, asks for its stream, and reads nothing."""
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
    # With the small buffer the kernel sends what it has buffered at some 10 kB/s.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    received = bytearray()
    while piece := client.recv(1 << 20):
        received += piece
    return bytes(received)


async def streams_open(client: Client) -> float:
    metrics = (await client.http.get("/metrics")).text
    found = re.search(r"^holdfast_streams_open (\S+)$", metrics, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def test_a_client_that_never_reads_is_disconnected_and_slows_no_run(
    server: Server, client: Client
) -> None:
    with never_reading(server, f'CALL flood {{"megabytes": {MEGABYTES}}}') as unread:

        async def finished_run() -> str | None:
            runs = (await client.get("/v1/runs"))["items"]
            return runs[0]["id"] if runs and runs[0]["status"] == "done" else None

        run_id = await eventually(finished_run)
        assert (await client.run(run_id))["outcome"] == "succeeded"

        async def no_stream_is_open() -> bool:
            return await streams_open(client) == 0

        await eventually(no_stream_is_open)
        received = read_to_the_end(unread)
    assert not received.endswith(b"0\r\n\r\n"), "the stream ended cleanly instead of breaking"
    assert b"run_finish" not in received
    complete = received[: received.rindex(b"\n\n")]
    last_id = re.findall(rb"^id: (\d+)$", complete, re.MULTILINE)[-1].decode()
    async with client.events(f"/v1/runs/{run_id}", last_id=last_id) as stream:
        missed = await stream.rest()
    log = await client.log(f"/v1/runs/{run_id}")
    assert missed == [event for event in log if event["seq"] > int(last_id)]
