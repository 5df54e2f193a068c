"""Bodies that are read past the HTTP stack are those that it would have read, and connections are used again."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.llm.http import asyncio_backend
from app.llm.http.bodies import StreamedBody
from app.llm.http.chunk_coalescing import MAX_CHUNK_BYTES
from app.llm.http.client import streaming_client
from app.llm.http.read_pacing import ReadPacing
from tests.support.controlled_server import ControlledServer, ServedConnection

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


@pytest.fixture(autouse=True, params=[False, True], ids=["few answers", "many answers"])
def paced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads as in a process that streams few answers, or many."""
    if request.param:
        monkeypatch.setattr(asyncio_backend, "UNPACED_SECONDS", -1.0)
        monkeypatch.setattr(ReadPacing, "interval", 0.001)


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with streaming_client() as opened:
        yield opened


async def sent(connection: ServedConnection, *writes: bytes) -> None:
    """Answer the next request of a connection."""
    await connection.reader.readuntil(b"\r\n\r\n")
    for write in writes:
        connection.writer.write(write)
        await connection.writer.drain()


async def pieces_of(response: httpx2.Response, idle_timeout: float = 10.0) -> AsyncIterator[bytes]:
    async with aclosing(StreamedBody(response, idle_timeout)) as body:
        while piece := await body.read():
            yield piece


async def body_of(client: httpx2.AsyncClient, host: ControlledServer) -> list[bytes]:
    async with client.stream("GET", f"http://127.0.0.1:{host.port}/") as response:
        return [piece async for piece in pieces_of(response)]


async def bodies(
    client: httpx2.AsyncClient, host: ControlledServer, *answers: Sequence[bytes]
) -> list[bytes]:
    """The bodies of answers on one connection."""
    found = []
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(body_of(client, host))
        connection = await host.connection()
        for number, writes in enumerate(answers):
            if number:
                asking = tasks.create_task(body_of(client, host))
            await sent(connection, *writes)
            found.append(b"".join(await asking))
    return found


@given(
    st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8),
    st.lists(st.integers(0, 400), max_size=6),
)
@settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_a_body_does_not_depend_on_how_it_arrives(
    host: ControlledServer, pieces: list[bytes], cuts: list[int]
) -> None:
    whole = HEAD + b"".join(map(chunk, pieces)) + LAST
    bounds = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    writes = [whole[a:b] for a, b in itertools.pairwise(bounds)]
    async with streaming_client() as client:
        assert await bodies(client, host, writes) == [b"".join(pieces)]


@pytest.mark.parametrize(
    "first",
    [
        HEAD + chunk(b"one") + LAST,
        EARLY_HINTS + HEAD + chunk(b"one") + LAST,
        HEAD + chunk(b"one") + b"0\r\nx-trailer: 1\r\n\r\n",
        HEAD + b"3;extension=1\r\none\r\n" + LAST,
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none",
    ],
    ids=["chunks", "early hints", "a trailer", "an extension", "a known length"],
)
async def test_the_next_answer_comes_over_the_same_connection(
    host: ControlledServer, client: httpx2.AsyncClient, first: bytes
) -> None:
    second = HEAD + chunk(b"two") + LAST
    assert await bodies(client, host, [first], [second]) == [b"one", b"two"]


async def test_a_huge_chunk_is_read_by_the_http_stack(
    host: ControlledServer, client: httpx2.AsyncClient
) -> None:
    huge = b"x" * (MAX_CHUNK_BYTES * 3)
    writes = [HEAD + chunk(b"a"), chunk(huge), chunk(b"b") + LAST]
    assert await bodies(client, host, writes) == [b"a" + huge + b"b"]


@pytest.mark.parametrize(
    "end, expected",
    [(b"nonsense\r\n", b"kept"), (chunk(b"part")[:5], b"keptpa"), (b"", b"kept")],
    ids=["no chunk", "a part of a chunk", "nothing"],
)
async def test_a_body_that_breaks_off_is_an_error_after_what_came_before(
    host: ControlledServer, client: httpx2.AsyncClient, end: bytes, expected: bytes
) -> None:
    received: list[bytes] = []
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(_error_of(client, host, received, 10.0))
        connection = await host.connection()
        await sent(connection, HEAD + chunk(b"kept") + end)
        connection.writer.close()
        assert isinstance(await reading, httpx2.RemoteProtocolError)
    assert b"".join(received) == expected


async def test_silence_is_a_time_out(host: ControlledServer, client: httpx2.AsyncClient) -> None:
    received: list[bytes] = []
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(_error_of(client, host, received, 0.2))
        await sent(await host.connection(), HEAD + chunk(b"kept"))
        error = await reading
    assert isinstance(error, httpx2.ReadTimeout)
    assert received == [b"kept"]


async def _error_of(
    client: httpx2.AsyncClient, host: ControlledServer, received: list[bytes], idle_timeout: float
) -> httpx2.HTTPError | None:
    """The error that ends a body; `received` gets the pieces before it."""
    try:
        async with client.stream("GET", f"http://127.0.0.1:{host.port}/") as response:
            async for piece in pieces_of(response, idle_timeout):
                received.append(piece)
    except httpx2.HTTPError as error:
        return error
    return None
