"""Responses of model servers: whole bodies, failures in their midst, and connections that are used again."""

import asyncio
import gzip
import itertools
import zlib
from collections.abc import AsyncIterator, Callable, Sequence

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.clock import yield_to_loop
from app.llm.http.client import StreamingClient
from app.llm.http.content_encodings import MAX_DECODED_BYTES
from app.llm.http.read_pacing import ReadPacing
from app.llm.http.requests import TimeLimits
from tests.support.controlled_server import TIMEOUT_SECONDS, ControlledServer, ServedConnection
from tests.support.http_requests import PATIENT, address_of, answered, asked, begun

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
HEAD = OK + b"transfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
SHORT_TIMEOUT_SECONDS = 0.2


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The event loop of a server."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(autouse=True, params=[False, True], ids=["few answers", "many answers"])
def paced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads as in a process that streams few answers, or many."""
    if request.param:
        monkeypatch.setattr("app.llm.http.connection.UNPACED_SECONDS", -1.0)
        monkeypatch.setattr(ReadPacing, "interval", 0.001)


@pytest.fixture
async def client() -> AsyncIterator[StreamingClient]:
    async with StreamingClient() as opened:
        yield opened


async def sent(connection: ServedConnection, *writes: bytes) -> None:
    """Answer the next request of a connection."""
    await connection.reader.readuntil(b"\r\n\r\n")
    for write in writes:
        connection.writer.write(write)
        await connection.writer.drain()


async def bodies(
    client: StreamingClient, host: ControlledServer, *answers: Sequence[bytes]
) -> list[bytes]:
    """The bodies of answers on one connection."""
    found = []
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(answered(client, address_of(host)))
        connection = await host.connection()
        for number, writes in enumerate(answers):
            if number:
                asking = tasks.create_task(answered(client, address_of(host)))
            await sent(connection, *writes)
            found.append(await asking)
    return found


# --- whole bodies ---------------------------------------------------------------------------------


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
    async with StreamingClient() as client:
        assert await bodies(client, host, writes) == [b"".join(pieces)]


@pytest.mark.parametrize(
    "first",
    [
        HEAD + chunk(b"one") + LAST,
        EARLY_HINTS + HEAD + chunk(b"one") + LAST,
        HEAD + chunk(b"one") + b"0\r\nx-trailer: 1\r\n\r\n",
        HEAD + b"3;extension=1\r\none\r\n" + LAST,
        OK + b"content-length: 3\r\n\r\none",
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\none",
    ],
    ids=["chunks", "early hints", "a trailer", "an extension", "a known length", "version 1.0"],
)
async def test_the_next_answer_comes_over_the_same_connection(
    host: ControlledServer, client: StreamingClient, first: bytes
) -> None:
    second = HEAD + chunk(b"two") + LAST
    assert await bodies(client, host, [first], [second]) == [b"one", b"two"]


@pytest.mark.parametrize(
    "first",
    [
        OK + b"connection: close\r\ncontent-length: 3\r\n\r\none",
        b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\none",
        HEAD + chunk(b"one") + LAST + b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n",
        HEAD + chunk(b"one") + LAST + b"x",
    ],
    ids=["close", "version 1.0", "a second response", "more bytes"],
)
async def test_the_next_answer_comes_over_another_connection(
    host: ControlledServer, client: StreamingClient, first: bytes
) -> None:
    assert await bodies(client, host, [first]) == [b"one"]
    assert await bodies(client, host, [HEAD + chunk(b"two") + LAST]) == [b"two"]


async def test_a_body_without_a_length_ends_with_its_connection(
    host: ControlledServer, client: StreamingClient
) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(answered(client, address_of(host)))
        connection = await host.connection()
        await sent(connection, OK + b"\r\none ", b"two")
        connection.writer.close()
        assert await asking == b"one two"


async def test_a_huge_chunk_is_read_in_pieces(
    host: ControlledServer, client: StreamingClient
) -> None:
    huge = b"x" * 3_000_000
    writes = [HEAD + chunk(b"a"), chunk(huge), chunk(b"b") + LAST]
    assert await bodies(client, host, writes) == [b"a" + huge + b"b"]


async def test_a_redirect_is_not_followed(host: ControlledServer, client: StreamingClient) -> None:
    moved = b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    response, _ = await begun(client, address_of(host), host, moved)
    assert (response.status, response.headers["location"]) == (307, "http://127.0.0.1:1/")
    assert response.is_complete
    await response.aclose()


# --- failures -------------------------------------------------------------------------------------


async def error_of(
    client: StreamingClient,
    host: ControlledServer,
    received: list[bytes],
    limits: TimeLimits = PATIENT,
) -> httpx2.HTTPError | None:
    """The error that ends a response; `received` gets the pieces before it."""
    try:
        response = await asked(client, address_of(host), limits=limits)
        try:
            while piece := await response.read():
                received.append(piece)
        finally:
            await response.aclose()
    except httpx2.HTTPError as error:
        return error
    return None


@pytest.mark.parametrize(
    "end, expected",
    [(b"nonsense\r\n", b"kept"), (chunk(b"part")[:5], b"keptpa"), (b"", b"kept")],
    ids=["no chunk", "a part of a chunk", "nothing"],
)
async def test_a_body_that_breaks_off_is_an_error_after_what_came_before(
    host: ControlledServer, client: StreamingClient, end: bytes, expected: bytes
) -> None:
    received: list[bytes] = []
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(error_of(client, host, received))
        connection = await host.connection()
        await sent(connection, HEAD + chunk(b"kept") + end)
        connection.writer.close()
        assert isinstance(await reading, httpx2.RemoteProtocolError)
    assert b"".join(received) == expected


async def test_a_reset_is_an_error_after_what_came_before(
    host: ControlledServer, client: StreamingClient
) -> None:
    received: list[bytes] = []
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(error_of(client, host, received))
        connection = await host.connection()
        await sent(connection, OK + b"\r\nkept")
        await _until_received(received)
        connection.reset()
        assert isinstance(await reading, httpx2.ReadError)
    assert received == [b"kept"]


async def test_silence_is_a_time_out(host: ControlledServer, client: StreamingClient) -> None:
    received: list[bytes] = []
    limits = PATIENT._replace(idle=SHORT_TIMEOUT_SECONDS)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(error_of(client, host, received, limits))
        await sent(await host.connection(), HEAD + chunk(b"kept"))
        error = await reading
    assert isinstance(error, httpx2.ReadTimeout)
    assert received == [b"kept"]


async def test_a_head_must_be_complete_in_time_although_bytes_arrive(
    host: ControlledServer, client: StreamingClient
) -> None:
    limits = PATIENT._replace(answer=SHORT_TIMEOUT_SECONDS)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(error_of(client, host, [], limits))
        connection = await host.connection()
        while not reading.done():
            connection.writer.write(EARLY_HINTS)
            await asyncio.wait([reading], timeout=SHORT_TIMEOUT_SECONDS / 10)
    assert isinstance(reading.result(), httpx2.ReadTimeout)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"SSH-2.0-OpenSSH_9.6\r\n"])
async def test_a_connection_without_a_head_is_an_error(
    host: ControlledServer, client: StreamingClient, answer: bytes
) -> None:
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(error_of(client, host, []))
        connection = await host.connection()
        await sent(connection, answer)
        connection.writer.close()
    assert isinstance(reading.result(), httpx2.RemoteProtocolError)


# --- large requests -------------------------------------------------------------------------------

LARGE = b"x" * 32_000_000
REFUSAL = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nno!"


async def test_an_answer_before_the_whole_request_was_read_is_returned(
    host: ControlledServer, client: StreamingClient
) -> None:
    response, connection = await begun(client, address_of(host), host, REFUSAL, LARGE)
    assert (response.status, await response.read(), await response.read()) == (413, b"no!", b"")
    await response.aclose()
    # Most of the request was not sent: the connection can't have another one.
    assert await connection.client_has_left() < len(LARGE)


async def test_an_answer_is_returned_although_its_server_ends_the_connection_early(
    host: ControlledServer, client: StreamingClient
) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(answered(client, address_of(host), LARGE))
        connection = await host.connection()
        await sent(connection, REFUSAL)
        connection.writer.write_eof()
        assert await asking == b"no!"


# --- compressed bodies ----------------------------------------------------------------------------

ANSWER = b"data: {}\n\n" * 1000


@pytest.mark.parametrize(
    "encoding, encode",
    [("gzip", gzip.compress), ("Deflate", zlib.compress), ("Identity", bytes), ("", bytes)],
)
async def test_a_compressed_body_is_decoded(
    host: ControlledServer,
    client: StreamingClient,
    encoding: str,
    encode: Callable[[bytes], bytes],
) -> None:
    head = OK + b"content-encoding: %b\r\ntransfer-encoding: chunked\r\n\r\n" % encoding.encode()
    whole = encode(ANSWER)
    chunks = b"".join(chunk(whole[at : at + 7]) for at in range(0, len(whole), 7))
    assert await bodies(client, host, [head, chunks, LAST], [HEAD + LAST]) == [ANSWER, b""]


async def test_a_body_in_an_unknown_encoding_is_an_error(
    host: ControlledServer, client: StreamingClient
) -> None:
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(error_of(client, host, []))
        whole = OK + b"content-encoding: br\r\ncontent-length: 3\r\n\r\nabc"
        await sent(await host.connection(), whole)
        error = await reading
    assert isinstance(error, httpx2.DecodingError)
    assert str(error) == "the body has the unknown encoding 'br'"


async def test_other_tasks_run_while_a_huge_body_is_decoded(
    host: ControlledServer, client: StreamingClient
) -> None:
    bomb = gzip.compress(b"\0" * MAX_DECODED_BYTES * 10)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await yield_to_loop()

    head = OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(bomb)
    response, _ = await begun(client, address_of(host), host, head + bomb)
    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count_turns())
        pieces = 0
        while piece := await response.read():
            assert len(piece) <= MAX_DECODED_BYTES
            pieces += 1
        assert response.is_complete
        assert turns >= pieces >= 10
        counting.cancel()
    await response.aclose()


async def _until_received(received: list[bytes]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not received:
            await yield_to_loop()
