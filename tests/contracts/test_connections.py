"""Connections to model servers, on both event loops: our backend and the one of the HTTP library."""

import asyncio
import hashlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import httpcore2
import pytest

from app.clock import sleep
from app.llm.http import asyncio_backend
from app.llm.http.asyncio_backend import READ_AHEAD, Connection, DirectBackend
from app.llm.http.read_pacing import ReadPacing
from tests.support.certificates import HOST, Certificate
from tests.support.conditions import eventually
from tests.support.controlled_server import (
    TIMEOUT_SECONDS,
    ControlledServer,
    ServedConnection,
    controlled_server,
)

pytestmark = pytest.mark.anyio

SHORT_TIMEOUT_SECONDS = 0.1
BACKENDS = {"ours": DirectBackend(), "the library's": httpcore2.AnyIOBackend()}
MEGABYTE = os.urandom(1024 * 1024)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> httpcore2.AsyncNetworkBackend:
    return BACKENDS[request.param]


@asynccontextmanager
async def connected(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer
) -> AsyncIterator[tuple[httpcore2.AsyncNetworkStream, ServedConnection]]:
    stream = await backend.connect_tcp("127.0.0.1", host.port, timeout=TIMEOUT_SECONDS)
    try:
        yield stream, await host.connection()
    finally:
        await stream.aclose()


async def fails(call: Awaitable[object]) -> Exception:
    try:
        await call
    except Exception as error:  # noqa: BLE001  the caller checks its type
        return error
    raise AssertionError("the call did not fail")


async def settled(value: Callable[[], object]) -> None:
    """Wait until `value` returns the same twice in a row."""
    before = None
    while (now := value()) != before:
        before = now
        await sleep(SHORT_TIMEOUT_SECONDS)


async def read_all(stream: httpcore2.AsyncNetworkStream) -> bytes:
    read = b""
    while data := await stream.read(65_536, timeout=TIMEOUT_SECONDS):
        read += data
    return read


# --- connecting -----------------------------------------------------------------------------------


async def test_a_refusal_is_an_error(
    backend: httpcore2.AsyncNetworkBackend, taken_port: int
) -> None:
    with pytest.raises(httpcore2.ConnectError):
        await backend.connect_tcp("127.0.0.1", taken_port, timeout=TIMEOUT_SECONDS)


async def test_an_unknown_host_is_an_error(backend: httpcore2.AsyncNetworkBackend) -> None:
    with pytest.raises(httpcore2.ConnectError):
        await backend.connect_tcp("unknown.invalid", 80, timeout=TIMEOUT_SECONDS)


@contextmanager
def unaccepted_listener(ip: str, port: int = 0) -> Iterator[socket.socket]:
    """Listens with a full backlog: a new connection hangs until one is accepted."""
    with socket.socket() as listening, socket.socket() as queued:
        listening.bind((ip, port))
        listening.listen(0)
        queued.connect(listening.getsockname())
        yield listening


async def test_a_slow_connect_times_out(
    backend: httpcore2.AsyncNetworkBackend,
) -> None:
    with unaccepted_listener("127.0.0.1") as listening, pytest.raises(httpcore2.ConnectTimeout):
        await backend.connect_tcp(
            "127.0.0.1", listening.getsockname()[1], timeout=SHORT_TIMEOUT_SECONDS
        )


# --- several addresses ----------------------------------------------------------------------------

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


@pytest.fixture
async def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host resolves to these two addresses, and the time-out per address is short."""

    async def resolve(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in (FIRST, SECOND)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr(asyncio_backend, "ADDRESS_TIMEOUT_SECONDS", SHORT_TIMEOUT_SECONDS)


async def reached(port: int) -> str:
    """The address that a connection to the host reaches."""
    stream = await DirectBackend().connect_tcp("twofold.test", port, timeout=TIMEOUT_SECONDS)
    try:
        ip: str = stream.get_extra_info("server_addr")[0]
        return ip
    finally:
        await stream.aclose()


@pytest.mark.usefixtures("two_addresses")
async def test_the_next_address_is_tried_when_one_refuses_or_is_slow() -> None:
    async with controlled_server(ip=SECOND) as host:
        assert await reached(host.port) == SECOND
        with unaccepted_listener(FIRST, host.port):
            assert await reached(host.port) == SECOND


@pytest.mark.usefixtures("two_addresses")
async def test_a_slow_address_is_awaited_when_no_other_is_left() -> None:
    with unaccepted_listener(FIRST) as listening:
        port = listening.getsockname()[1]
        async with asyncio.TaskGroup() as tasks:
            connecting = tasks.create_task(reached(port))
            await sleep(3 * SHORT_TIMEOUT_SECONDS)
            listening.accept()[0].close()
        assert connecting.result() == FIRST


@pytest.mark.usefixtures("two_addresses")
async def test_a_host_that_refuses_on_every_address_is_an_error(taken_port: int) -> None:
    with pytest.raises(httpcore2.ConnectError):
        await reached(taken_port)


# --- TLS ------------------------------------------------------------------------------------------


async def encrypted(
    backend: httpcore2.AsyncNetworkBackend,
    host: ControlledServer,
    context: ssl.SSLContext,
    name: str = HOST,
    timeout: float = TIMEOUT_SECONDS,
) -> httpcore2.AsyncNetworkStream:
    stream = await backend.connect_tcp("127.0.0.1", host.port, timeout=TIMEOUT_SECONDS)
    return await stream.start_tls(context, name, timeout)


async def test_tls_transfers_all_bytes(
    backend: httpcore2.AsyncNetworkBackend, certificate: Certificate
) -> None:
    async with controlled_server(certificate) as host:
        stream = await encrypted(backend, host, certificate.of_client())
        connection = await host.connection()
        await stream.write(b"a question", timeout=TIMEOUT_SECONDS)
        assert await connection.reader.readexactly(10) == b"a question"
        connection.writer.write(MEGABYTE)
        connection.writer.close()
        assert await read_all(stream) == MEGABYTE
        assert stream.get_extra_info("ssl_object").version() == "TLSv1.3"
        await stream.aclose()


async def test_a_certificate_that_is_not_trusted_is_an_error(
    backend: httpcore2.AsyncNetworkBackend, certificate: Certificate
) -> None:
    async with controlled_server(certificate) as host:
        with pytest.raises(httpcore2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await encrypted(backend, host, ssl.create_default_context())
        with pytest.raises(httpcore2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await encrypted(backend, host, certificate.of_client(), name="elsewhere.test")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_a_server_without_tls_is_an_error(
    backend: httpcore2.AsyncNetworkBackend,
    host: ControlledServer,
    certificate: Certificate,
    answer: bytes,
) -> None:
    async with asyncio.TaskGroup() as tasks:
        connecting = tasks.create_task(fails(encrypted(backend, host, certificate.of_client())))
        connection = await host.connection()
        connection.writer.write(answer)
        connection.writer.close()
    assert isinstance(connecting.result(), httpcore2.ConnectError)


async def test_a_slow_tls_handshake_times_out_and_closes_the_connection(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer, certificate: Certificate
) -> None:
    with pytest.raises(httpcore2.ConnectTimeout):
        await encrypted(backend, host, certificate.of_client(), timeout=SHORT_TIMEOUT_SECONDS)
    connection = await host.connection()
    await connection.client_has_left()


# --- reading --------------------------------------------------------------------------------------


async def test_a_read_after_a_read_timeout_gets_the_late_bytes(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer
) -> None:
    async with connected(backend, host) as (stream, connection):
        with pytest.raises(httpcore2.ReadTimeout):
            await stream.read(100, timeout=SHORT_TIMEOUT_SECONDS)
        connection.writer.write(b"late")
        assert await stream.read(100, timeout=TIMEOUT_SECONDS) == b"late"


async def test_a_cancelled_read_loses_no_bytes(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer
) -> None:
    async with connected(backend, host) as (stream, connection):
        for _ in range(20):
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(stream.read(100))
                await sleep(0)
                connection.writer.write(b"word")
                reading.cancel()
            read = b"" if reading.cancelled() else reading.result()
            while len(read) < 4:
                read += await stream.read(100, timeout=TIMEOUT_SECONDS)
            assert read == b"word"


async def test_bytes_sent_before_the_server_closed_are_read(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer
) -> None:
    async with connected(backend, host) as (stream, connection):
        connection.writer.write(b"good")
        connection.writer.write(b"bye")
        connection.writer.close()
        assert await read_all(stream) == b"goodbye"
        assert await stream.read(100, timeout=TIMEOUT_SECONDS) == b""


async def test_a_connection_reset_is_a_read_error(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer
) -> None:
    async with connected(backend, host) as (stream, connection):
        connection.reset()
        with pytest.raises(httpcore2.ReadError):
            await stream.read(100, timeout=TIMEOUT_SECONDS)


async def test_a_connection_reports_that_it_is_readable(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer
) -> None:
    """The HTTP library uses this to notice that the server closed an idle connection."""
    async with connected(backend, host) as (stream, connection):

        async def is_readable() -> bool:
            return bool(stream.get_extra_info("is_readable"))

        assert not await is_readable()
        connection.writer.close()
        await eventually(is_readable)


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
async def test_reading_ahead_is_bounded_and_loses_no_bytes(
    certificate: Certificate, is_encrypted: bool
) -> None:
    pieces = 16
    async with controlled_server(certificate if is_encrypted else None) as host:
        stream = await DirectBackend().connect_tcp("127.0.0.1", host.port, timeout=TIMEOUT_SECONDS)
        if is_encrypted:
            await stream.start_tls(certificate.of_client(), HOST, TIMEOUT_SECONDS)
        assert isinstance(stream, Connection)
        connection = await host.connection()
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(pieces):
                connection.writer.write(MEGABYTE)
                await connection.writer.drain()
                sent += 1
            connection.writer.close()

        async def is_full() -> bool:
            return len(stream._arrived) > READ_AHEAD

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            await eventually(is_full)
            await settled(lambda: (sent, len(stream._arrived)))
            assert sent < pieces
            assert len(stream._arrived) < 2 * READ_AHEAD
            expected, found = hashlib.sha256(MEGABYTE * pieces), hashlib.sha256()
            found.update(await read_all(stream))
        assert found.digest() == expected.digest()
        await stream.aclose()


# --- writing --------------------------------------------------------------------------------------


async def test_a_write_to_a_server_that_does_not_read_times_out(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer
) -> None:
    async with connected(backend, host) as (stream, connection):
        with pytest.raises(httpcore2.WriteTimeout):
            await stream.write(MEGABYTE * 16, timeout=SHORT_TIMEOUT_SECONDS)
    await connection.client_has_left()


async def test_a_connection_reset_during_a_write_is_a_write_error(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer
) -> None:
    async with connected(backend, host) as (stream, connection), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(fails(stream.write(MEGABYTE * 16, timeout=TIMEOUT_SECONDS)))
        await sleep(SHORT_TIMEOUT_SECONDS)
        connection.reset()
        assert isinstance(await writing, httpcore2.WriteError)


async def test_a_server_that_reads_slowly_gets_everything(
    backend: httpcore2.AsyncNetworkBackend, host: ControlledServer
) -> None:
    async with connected(backend, host) as (stream, connection), asyncio.TaskGroup() as tasks:
        tasks.create_task(stream.write(MEGABYTE * 8, timeout=TIMEOUT_SECONDS))
        read = await connection.reader.readexactly(8 * len(MEGABYTE))
    assert read == MEGABYTE * 8


# --- closing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
async def test_closing_does_not_wait_for_the_server(
    backend: httpcore2.AsyncNetworkBackend, certificate: Certificate, is_encrypted: bool
) -> None:
    """Neither for a server that doesn't read, nor for one that keeps sending."""
    async with controlled_server(certificate if is_encrypted else None) as host:
        stream = await backend.connect_tcp("127.0.0.1", host.port, timeout=TIMEOUT_SECONDS)
        if is_encrypted:
            stream = await stream.start_tls(certificate.of_client(), HOST, TIMEOUT_SECONDS)
        connection = await host.connection()
        connection.writer.write(MEGABYTE * 8)
        with suppress(httpcore2.WriteTimeout):
            await stream.write(MEGABYTE * 32, timeout=SHORT_TIMEOUT_SECONDS)
        await asyncio.wait_for(stream.aclose(), TIMEOUT_SECONDS)
        await asyncio.wait_for(stream.aclose(), TIMEOUT_SECONDS)
        assert await connection.client_has_left() < 32 * len(MEGABYTE)


async def test_a_connection_that_the_server_ended_can_be_closed(host: ControlledServer) -> None:
    async with (
        connected(DirectBackend(), host) as (stream, connection),
        asyncio.TaskGroup() as tasks,
    ):
        writing = tasks.create_task(fails(stream.write(MEGABYTE * 8, timeout=TIMEOUT_SECONDS)))
        connection.writer.write_eof()
        assert await stream.read(100, timeout=TIMEOUT_SECONDS) == b""
        await connection.reader.readexactly(8 * len(MEGABYTE))
        await connection.client_has_left()
        assert isinstance(await writing, httpcore2.WriteError)


# --- many answers at once -------------------------------------------------------------------------


class PausesUntilReleased(ReadPacing):
    """A pacing whose pauses a test ends."""

    def __init__(self) -> None:
        super().__init__()
        self.is_pausing, self.released = asyncio.Event(), asyncio.Event()

    @property
    def interval(self) -> float:
        return 60.0

    async def pause_until(self, due: float) -> None:
        self.is_pausing.set()
        await self.released.wait()


async def test_what_arrives_during_a_pause_is_read_at_once(
    host: ControlledServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio_backend, "UNPACED_SECONDS", 0.0)
    backend, pacing = DirectBackend(), PausesUntilReleased()
    backend._pacing = pacing
    async with connected(backend, host) as (stream, served), asyncio.TaskGroup() as tasks:
        served.writer.write(b"one ")
        reading = tasks.create_task(stream.read(65_536, timeout=TIMEOUT_SECONDS))
        await pacing.is_pausing.wait()
        served.writer.write(b"two")
        await eventually(lambda: _has_arrived(stream, b"one two"))
        pacing.released.set()
        assert await reading == b"one two"


async def test_the_first_moments_of_an_answer_are_not_paced(host: ControlledServer) -> None:
    backend = DirectBackend()
    backend._pacing = PausesUntilReleased()
    async with connected(backend, host) as (stream, served):
        await stream.write(b"a question", timeout=TIMEOUT_SECONDS)
        served.writer.write(b"an answer")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await stream.read(65_536) == b"an answer"


async def _has_arrived(stream: httpcore2.AsyncNetworkStream, data: bytes) -> bool:
    assert isinstance(stream, Connection)
    return bytes(stream._arrived) == data


class RecordedWrites(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.writes.append(data)


REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 4\r\n\r\n"


async def test_the_head_of_a_request_is_written_with_its_body() -> None:
    connection, transport = Connection(), RecordedWrites()
    connection.connection_made(transport)
    for body in (b"1234", b"567\r\n\r\n"):
        await connection.write(REQUEST)
        await connection.write(body)
        await connection.write(b"")
    assert transport.writes == [REQUEST + b"1234", REQUEST + b"567\r\n\r\n"]


async def test_the_head_of_a_request_without_a_body_is_written_when_the_answer_is_read() -> None:
    connection, transport = Connection(), RecordedWrites()
    connection.connection_made(transport)
    await connection.write(REQUEST)
    assert transport.writes == []
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    assert await connection.read(100) == b"HTTP/1.1 200 OK\r\n\r\n"
    assert transport.writes == [REQUEST]
