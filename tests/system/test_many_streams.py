"""What streams cost the server: two thousand idle ones, and some whose clients never read."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import psutil
import pytest

from tests.support.conditions import eventually
from tests.support.servers import Server, serving
from tests.support.streams import TIMEOUT_SECONDS, Client

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

IDLE = 2000
MAX_IDLE_BYTES = 100_000_000
MAX_NEW_CONNECTIONS = 5
"""A pool may open some while it serves requests. If streams held connections, both pools would be full."""
RUNS = 20
HEARTBEAT = 5.0

UNREAD_STREAMS = 30
MEGABYTES = 12
MAX_BYTES_PER_UNREAD_STREAM = 1_000_000
"""Memory of the server process, without the kernel's socket buffers."""


def memory_of(server: Server) -> int:
    rss: int = psutil.Process(server.pid).memory_info().rss
    return rss


async def connections_to(database_url: str) -> int:
    database = await asyncpg.connect(database_url)
    try:
        count: int = await database.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        )
    finally:
        await database.close()
    return count


async def open_stream(
    server: Server, path: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a stream on a bare socket, because two thousand HTTP clients would dominate the measurement."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    return reader, writer


@asynccontextmanager
async def opened(
    server: Server, runs: list[str], count: int
) -> AsyncIterator[list[asyncio.StreamReader]]:
    async with AsyncExitStack() as stack:
        readers = []
        for number in range(count):
            path = f"/v1/runs/{runs[number % RUNS]}/events?from=now&follow=1"
            reader, writer = await open_stream(server, path)
            stack.callback(writer.close)
            readers.append(reader)
        yield readers


async def heartbeat(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await reader.readuntil(b": heartbeat\n\n")


@pytest.fixture
async def waiting(
    shared_database_url: str, agents: Path
) -> AsyncIterator[tuple[Server, list[str]]]:
    """A server as it is by default, and runs that wait for people."""
    async with (
        serving(
            shared_database_url, agents=agents, stream_heartbeat=HEARTBEAT, log_poll=2
        ) as server,
        server.client() as client,
    ):
        runs = []
        for _ in range(RUNS):
            run = await client.start("quick", 'CALL risky {"what": "it"}')
            runs.append((await client.settled(run["id"]))["id"])
        yield server, runs


async def test_idle_streams_cost_little_memory_and_no_connection(
    shared_database_url: str, waiting: tuple[Server, list[str]]
) -> None:
    server, runs = waiting
    async with opened(server, runs, IDLE // 10) as readers:
        # Warm up caches, pools and the allocator before the first measurement.
        await asyncio.gather(*map(heartbeat, readers))
    memory = memory_of(server)
    connections = await connections_to(shared_database_url)
    async with opened(server, runs, IDLE) as readers:
        await asyncio.gather(*map(heartbeat, readers))
        added = memory_of(server) - memory
        held = await connections_to(shared_database_url) - connections
    assert added < MAX_IDLE_BYTES, f"{IDLE} idle streams take {added / 1e6:.0f} MB"
    assert held <= MAX_NEW_CONNECTIONS, f"{IDLE} idle streams hold {held} connections"


async def test_a_client_that_never_reads_costs_bounded_memory(
    shared_database_url: str, agents: Path
) -> None:
    async with (
        serving(shared_database_url, agents=agents, stream_send_timeout=3) as server,
        server.client() as client,
    ):
        run = await client.start("quick", f'CALL flood {{"megabytes": {MEGABYTES}}}')
        path = f"/v1/runs/{run['id']}"
        await client.settled(run["id"])
        async with client.events(path) as stream:
            whole = len(json.dumps(await stream.rest()))
        before = memory_of(server)
        unread = [never_reading(server, f"{path}/events") for _ in range(UNREAD_STREAMS)]
        peak = 0

        async def all_are_open() -> bool:
            return await streams_open(client) == UNREAD_STREAMS

        async def all_are_cut() -> bool:
            nonlocal peak
            peak = max(peak, memory_of(server))
            return await streams_open(client) == 0

        await eventually(all_are_open)
        await eventually(all_are_cut)
        received = [drained_length(one) for one in unread]
    added = peak - before
    assert added < UNREAD_STREAMS * MAX_BYTES_PER_UNREAD_STREAM, (
        f"{UNREAD_STREAMS} clients that never read took {added / 1e6:.0f} MB"
    )
    assert max(received) < whole, "a client that was cut received the whole log"


def never_reading(server: Server, path: str) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", server.port))
    client.sendall(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    return client


def drained_length(client: socket.socket) -> int:
    client.settimeout(20)
    length = 0
    with client:
        while piece := client.recv(1 << 20):
            length += len(piece)
    return length


async def streams_open(client: Client) -> int:
    for line in (await client.http.get("/metrics")).text.splitlines():
        if line.startswith("holdfast_streams_open "):
            return int(float(line.split()[1]))
    raise AssertionError("the metric holdfast_streams_open is missing")
