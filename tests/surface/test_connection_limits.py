"""Slow, endless or malformed requests cost a bounded time and memory, and delay no other client."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable

import psutil
import pytest

from tests.support.conditions import eventually
from tests.support.keys import write_keys
from tests.support.rows import all_rows
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body
from tests.surface.conftest import AGENTS, HOLDERS, OURS
from tests.surface.raw_http import RawHTTP, a_request, raw_http

pytestmark = pytest.mark.anyio

SECONDS = 1.0
"""The time-out for slow clients."""
MAX_BODY_BYTES = 100_000
BODY = json.dumps(start_body("quick", "hello")).encode()
JSON = b"Content-Type: application/json"


@pytest.fixture(scope="module")
async def server(
    served_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", HOLDERS)
    async with serving(
        served_database,
        agents=AGENTS,
        api_keys_file=keys,
        client_timeout=SECONDS,
        max_body_bytes=MAX_BODY_BYTES,
    ) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client(OURS) as ours:
        yield ours


def a_start(*headers: bytes) -> bytes:
    return a_request("POST", "/v1/runs", JSON, *headers, key=OURS)


def the_code(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Type: application/problem+json" in head
    assert b"Connection: close" in head
    problem = json.loads(body)
    assert problem["status"] == int(head.split()[1])
    assert problem.keys() >= {"type", "title", "detail", "trace_id", "retryable"}
    return str(problem["code"])


async def cut_after(connection: RawHTTP) -> tuple[bytes, float]:
    """The bytes until the connection ends, and the seconds until then."""
    began = time.monotonic()
    return await connection.read_all(), time.monotonic() - began


# --- slow -----------------------------------------------------------------------------------------


async def test_a_silent_connection_is_closed(server: Server) -> None:
    async with raw_http(server.base) as connection:
        received, seconds = await cut_after(connection)
    assert received == b""
    assert seconds >= SECONDS * 0.9


SLOW: dict[str, Callable[[], list[bytes]]] = {
    "its head byte by byte": lambda: [b"GET /v1/runs HTTP/1.1\r\nHost: ", *[b"x"] * 1000],
    "header after header": lambda: [b"GET /v1/runs HTTP/1.1\r\n", *[b"X-A: b\r\n"] * 1000],
    "empty lines": lambda: [b"\r\n"] * 1000,
    "its body byte by byte": lambda: [a_start(b"Content-Length: 5000"), *[b" "] * 1000],
    "one small piece of its body after the other": lambda: [
        a_start(b"Transfer-Encoding: chunked"),
        *[b"1\r\n \r\n"] * 1000,
    ],
    "a second request": lambda: [
        a_request("GET", "/v1/agents", key=OURS),
        b"GET /v1/agents HTTP/1.1\r\nX-Slow: ",
        *[b"x"] * 1000,
    ],
}


@pytest.mark.parametrize("what", SLOW)
async def test_a_slow_sender_is_refused_in_time(
    server: Server, served_database: str, what: str
) -> None:
    before = await all_rows(served_database)
    async with raw_http(server.base) as connection, asyncio.TaskGroup() as tasks:
        dripping = tasks.create_task(connection.drip(SLOW[what](), SECONDS / 10))
        received, seconds = await cut_after(connection)
        dripping.cancel()
    assert seconds >= SECONDS * 0.9
    last = received.rpartition(b"HTTP/1.1 ")
    assert the_code(last[1] + last[2]) == "request_timeout"
    assert await all_rows(served_database) == before


async def test_fast_clients_are_served_while_many_are_slow(server: Server, client: Client) -> None:
    served, began = asyncio.Event(), asyncio.Semaphore(0)

    async def keep_one_open() -> None:
        """Open another one whenever the server closes it."""
        while not served.is_set():
            async with raw_http(server.base) as connection:
                await connection.send(a_start(b"Content-Length: 5000") + b'{"agent_id": "qui')
                began.release()
                await connection.read_all()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(200):
            tasks.create_task(keep_one_open())
        for _ in range(200):
            await began.acquire()
        run = await client.start("quick", "hello")
        assert (await client.settled(run["id"]))["outcome"] == "succeeded"
        served.set()


async def test_a_sender_within_the_timeout_is_served(server: Server, client: Client) -> None:
    async with raw_http(server.base) as connection:
        whole = a_start(b"Content-Length: %d" % len(BODY), b"Connection: close") + BODY
        pieces = [whole[at : at + 40] for at in range(0, len(whole), 40)]
        await connection.drip(pieces, SECONDS / 50)
        assert (await connection.read_all()).startswith(b"HTTP/1.1 202 ")


async def test_a_large_upload_may_take_longer_than_the_timeout(server: Server) -> None:
    pieces = [b"x" * 5_000] * 60
    async with raw_http(server.base) as connection:
        size = b"Content-Length: %d" % sum(map(len, pieces))
        head = a_request("POST", "/v1/files", size, b"Connection: close", key=OURS)
        began = time.monotonic()
        await connection.drip([head, *pieces], SECONDS / 20)
        assert time.monotonic() - began > 2 * SECONDS
        assert (await connection.read_all()).startswith(b"HTTP/1.1 201 ")


async def test_a_stream_outlives_the_client_timeout(server: Server, client: Client) -> None:
    run = await client.settled((await client.start("quick", 'CALL risky {"what": "it"}'))["id"])
    async with client.events(f"/v1/runs/{run['id']}", follow=1) as stream:
        await stream.until("run_finish")
        async with raw_http(server.base) as connection:
            await connection.read_all()
        await client.decide(run, "approve")
        await stream.rest()


async def test_an_answer_that_is_not_read_is_abandoned(server: Server, client: Client) -> None:
    thread = (await client.start("quick", "hello"))["thread_id"]
    for _ in range(3):
        long = start_body("quick", "x" * 60_000, thread_id=thread)
        await client.settled((await client.post("/v1/runs", long, 202))["id"])
    request = a_request("GET", f"/v1/threads/{thread}/messages?limit=200", key=OURS)
    open_now = len(psutil.Process(server.pid).net_connections("tcp"))
    async with raw_http(server.base) as connection:
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport can read, too
        # More responses than all buffers hold.
        await connection.send(request * 100)

        async def is_given_up() -> bool:
            return len(psutil.Process(server.pid).net_connections("tcp")) <= open_now

        await eventually(is_given_up)


# --- endless and malformed ------------------------------------------------------------------------

ENDLESS: dict[str, tuple[bytes, bytes, str]] = {
    "an address": (b"GET /", b"x" * 10_000, "headers_too_large"),
    "a header": (b"GET / HTTP/1.1\r\nX-Long: ", b"x" * 10_000, "headers_too_large"),
    "headers": (b"GET / HTTP/1.1\r\n", b"X-Many: one more\r\n" * 1000, "headers_too_large"),
    "fields behind a body": (
        a_start(b"Transfer-Encoding: chunked") + b"0\r\n",
        b"X-Behind: one more\r\n" * 1000,
        "headers_too_large",
    ),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_an_endless_request_is_refused_early(
    server: Server, served_database: str, what: str
) -> None:
    begins, continues, code = ENDLESS[what]
    before = await all_rows(served_database)
    async with raw_http(server.base) as connection, asyncio.TaskGroup() as tasks:
        flooding = tasks.create_task(connection.drip([begins, *[continues] * 1000], 0))
        assert the_code(await connection.read_all()) == code
        flooding.cancel()
    assert await all_rows(served_database) == before


async def test_bytes_that_are_not_http_get_a_problem_response(server: Server) -> None:
    for noise in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"\0" * 100):
        async with raw_http(server.base) as connection:
            await connection.send(noise)
            assert the_code(await connection.read_all()) == "malformed_request"


@pytest.mark.parametrize(
    "headers",
    [
        [b"Content-Length: 5", b"Content-Length: 6"],
        [b"Content-Length: 5", b"Transfer-Encoding: chunked"],
        [b"Content-Length: -5"],
        [b"Content-Length: +5"],
        [b"Content-Length: 0x5"],
        [b"Content-Length: 99999999999999999999999"],
        [b"Transfer-Encoding: chunked, identity"],
        [b"X-Folded: a\r\n b"],
        [b"X-Cut: a\rb"],
        [b"X-Nothing: a\0b"],
        [b"X Spaced: a"],
    ],
    ids=str,
)
async def test_an_ambiguous_request_is_refused(
    server: Server, served_database: str, headers: list[bytes]
) -> None:
    before = await all_rows(served_database)
    async with raw_http(server.base) as connection:
        await connection.send(a_start(*headers, b"Connection: close") + BODY)
        answer = await connection.read_all()
    assert answer.split()[1] in (b"400", b"413"), answer
    assert await all_rows(served_database) == before


async def test_an_endless_body_is_cut(server: Server, served_database: str) -> None:
    """The refusal comes at once; a client that sends more is disconnected."""
    before = await all_rows(served_database)
    piece = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
    async with raw_http(server.base) as connection, asyncio.TaskGroup() as tasks:
        flooding = tasks.create_task(
            connection.drip([a_start(b"Transfer-Encoding: chunked"), *[piece] * 10_000], 0)
        )
        assert b" 413 " in await connection.read_all()
        flooding.cancel()
    assert await all_rows(served_database) == before


async def test_floods_do_not_grow_the_memory_of_the_server(server: Server, client: Client) -> None:
    process = psutil.Process(server.pid)

    async def flood(begins: bytes, continues: bytes) -> None:
        async with raw_http(server.base) as connection, asyncio.TaskGroup() as tasks:
            flooding = tasks.create_task(connection.drip([begins, *[continues] * 500], 0))
            await connection.read_all()
            flooding.cancel()

    async def all_kinds() -> None:
        async with asyncio.TaskGroup() as tasks:
            for begins, continues, _ in ENDLESS.values():
                for _ in range(10):
                    tasks.create_task(flood(begins, continues))
            for _ in range(20):
                body = a_start(b"Content-Length: 2000000")
                tasks.create_task(flood(body, b" " * 100_000))

    await all_kinds()
    before = process.memory_info().rss
    for _ in range(3):
        await all_kinds()
    assert process.memory_info().rss - before < 30_000_000
    assert (await client.get("/health"))["status"] == "healthy"
