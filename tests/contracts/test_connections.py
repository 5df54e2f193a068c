"""What connections to model servers keep, on either event loop: ours as well as the HTTP stack's own."""

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
from tests.support.certificates import HOST, Certificate
from tests.support.conditions import eventually
from tests.support.hosts import PATIENCE, Guest, Host, hosting

pytestmark = pytest.mark.anyio

SOON = 0.1
BACKENDS = {"ours": DirectBackend(), "the stack's": httpcore2.AnyIOBackend()}
MEGABYTE = os.urandom(1024 * 1024)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> httpcore2.AsyncNetworkBackend:
    return BACKENDS[request.param]


@asynccontextmanager
async def connected(
    backend: httpcore2.AsyncNetworkBackend, host: Host
) -> AsyncIterator[tuple[httpcore2.AsyncNetworkStream, Guest]]:
    stream = await backend.connect_tcp("127.0.0.1", host.port, timeout=PATIENCE)
    try:
        yield stream, await host.guest()
    finally:
        await stream.aclose()


async def fails(doing: Awaitable[object]) -> Exception:
    try:
        await doing
    except Exception as error:  # noqa: BLE001  whoever asks looks at its kind
        return error
    raise AssertionError("it didn't fail")


async def stands_still(look: Callable[[], object]) -> None:
    """Wait until nothing moves any more."""
    before = None
    while (now := look()) != before:
        before = now
        await sleep(SOON)


async def read_all(stream: httpcore2.AsyncNetworkStream) -> bytes:
    read = b""
    while data := await stream.read(65_536, timeout=PATIENCE):
        read += data
    return read


# --- connecting -----------------------------------------------------------------------------------


async def test_a_refusal_is_an_error(
    backend: httpcore2.AsyncNetworkBackend, taken_port: int
) -> None:
    with pytest.raises(httpcore2.ConnectError):
        await backend.connect_tcp("127.0.0.1", taken_port, timeout=PATIENCE)


async def test_a_host_that_nobody_knows_is_an_error(backend: httpcore2.AsyncNetworkBackend) -> None:
    with pytest.raises(httpcore2.ConnectError):
        await backend.connect_tcp("nobody.invalid", 80, timeout=PATIENCE)


@contextmanager
def deaf(ip: str, port: int = 0) -> Iterator[socket.socket]:
    """Listens, but has no room for anybody: a connection hangs until it is heard."""
    with socket.socket() as listening, socket.socket() as the_only_one:
        listening.bind((ip, port))
        listening.listen(0)
        the_only_one.connect(listening.getsockname())
        yield listening


async def test_a_connection_that_takes_too_long_is_given_up(
    backend: httpcore2.AsyncNetworkBackend,
) -> None:
    with deaf("127.0.0.1") as listening, pytest.raises(httpcore2.ConnectTimeout):
        await backend.connect_tcp("127.0.0.1", listening.getsockname()[1], timeout=SOON)


# --- several addresses ----------------------------------------------------------------------------

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


@pytest.fixture
async def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host has these two, and tests have little patience."""

    async def resolve(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in (FIRST, SECOND)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr(asyncio_backend, "ADDRESS_TIMEOUT_SECONDS", SOON)


async def reached(port: int) -> str:
    """The address that a connection to the host gets to."""
    stream = await DirectBackend().connect_tcp("twofold.test", port, timeout=PATIENCE)
    try:
        ip: str = stream.get_extra_info("server_addr")[0]
        return ip
    finally:
        await stream.aclose()


@pytest.mark.usefixtures("two_addresses")
async def test_an_address_that_refuses_or_is_late_gives_way_to_the_next() -> None:
    async with hosting(ip=SECOND) as host:
        assert await reached(host.port) == SECOND
        with deaf(FIRST, host.port):
            assert await reached(host.port) == SECOND


@pytest.mark.usefixtures("two_addresses")
async def test_an_address_that_was_late_has_another_chance_when_no_other_is_left() -> None:
    with deaf(FIRST) as listening:
        port = listening.getsockname()[1]
        async with asyncio.TaskGroup() as tasks:
            connecting = tasks.create_task(reached(port))
            await sleep(3 * SOON)
            listening.accept()[0].close()
        assert connecting.result() == FIRST


@pytest.mark.usefixtures("two_addresses")
async def test_a_host_that_refuses_everywhere_is_an_error(taken_port: int) -> None:
    with pytest.raises(httpcore2.ConnectError):
        await reached(taken_port)


# --- TLS ------------------------------------------------------------------------------------------


async def encrypted(
    backend: httpcore2.AsyncNetworkBackend,
    host: Host,
    context: ssl.SSLContext,
    name: str = HOST,
    timeout: float = PATIENCE,
) -> httpcore2.AsyncNetworkStream:
    stream = await backend.connect_tcp("127.0.0.1", host.port, timeout=PATIENCE)
    return await stream.start_tls(context, name, timeout)


async def test_tls_carries_what_is_written(
    backend: httpcore2.AsyncNetworkBackend, certificate: Certificate
) -> None:
    async with hosting(certificate) as host:
        stream = await encrypted(backend, host, certificate.of_client())
        guest = await host.guest()
        await stream.write(b"a question", timeout=PATIENCE)
        assert await guest.reader.readexactly(10) == b"a question"
        guest.writer.write(MEGABYTE)
        guest.writer.close()
        assert await read_all(stream) == MEGABYTE
        assert stream.get_extra_info("ssl_object").version() == "TLSv1.3"
        await stream.aclose()


async def test_a_certificate_that_is_not_trusted_is_an_error(
    backend: httpcore2.AsyncNetworkBackend, certificate: Certificate
) -> None:
    async with hosting(certificate) as host:
        with pytest.raises(httpcore2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await encrypted(backend, host, ssl.create_default_context())
        with pytest.raises(httpcore2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await encrypted(backend, host, certificate.of_client(), name="elsewhere.test")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_a_server_without_tls_is_an_error(
    backend: httpcore2.AsyncNetworkBackend, host: Host, certificate: Certificate, answer: bytes
) -> None:
    async with asyncio.TaskGroup() as tasks:
        connecting = tasks.create_task(fails(encrypted(backend, host, certificate.of_client())))
        guest = await host.guest()
        guest.writer.write(answer)
        guest.writer.close()
    assert isinstance(connecting.result(), httpcore2.ConnectError)


async def test_tls_that_takes_too_long_is_given_up_with_its_connection(
    backend: httpcore2.AsyncNetworkBackend, host: Host, certificate: Certificate
) -> None:
    with pytest.raises(httpcore2.ConnectTimeout):
        await encrypted(backend, host, certificate.of_client(), timeout=SOON)
    guest = await host.guest()
    await guest.has_left()


# --- reading --------------------------------------------------------------------------------------


async def test_silence_is_given_up_and_what_comes_later_is_not_lost(
    backend: httpcore2.AsyncNetworkBackend, host: Host
) -> None:
    async with connected(backend, host) as (stream, guest):
        with pytest.raises(httpcore2.ReadTimeout):
            await stream.read(100, timeout=SOON)
        guest.writer.write(b"late")
        assert await stream.read(100, timeout=PATIENCE) == b"late"


async def test_a_reader_that_is_cancelled_loses_nothing(
    backend: httpcore2.AsyncNetworkBackend, host: Host
) -> None:
    async with connected(backend, host) as (stream, guest):
        for _ in range(20):
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(stream.read(100))
                await sleep(0)
                guest.writer.write(b"word")
                reading.cancel()
            read = b"" if reading.cancelled() else reading.result()
            while len(read) < 4:
                read += await stream.read(100, timeout=PATIENCE)
            assert read == b"word"


async def test_what_a_server_said_before_it_left_is_read(
    backend: httpcore2.AsyncNetworkBackend, host: Host
) -> None:
    async with connected(backend, host) as (stream, guest):
        guest.writer.write(b"good")
        guest.writer.write(b"bye")
        guest.writer.close()
        assert await read_all(stream) == b"goodbye"
        assert await stream.read(100, timeout=PATIENCE) == b""


async def test_a_connection_that_breaks_is_an_error(
    backend: httpcore2.AsyncNetworkBackend, host: Host
) -> None:
    async with connected(backend, host) as (stream, guest):
        guest.reset()
        with pytest.raises(httpcore2.ReadError):
            await stream.read(100, timeout=PATIENCE)


async def test_a_connection_tells_that_there_is_something_to_read(
    backend: httpcore2.AsyncNetworkBackend, host: Host
) -> None:
    """So the HTTP stack knows an idle connection that its server has closed."""
    async with connected(backend, host) as (stream, guest):

        async def is_readable() -> bool:
            return bool(stream.get_extra_info("is_readable"))

        assert not await is_readable()
        guest.writer.close()
        await eventually(is_readable)


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
async def test_a_server_waits_for_a_reader_that_has_enough_and_nothing_is_lost(
    certificate: Certificate, is_encrypted: bool
) -> None:
    pieces = 16
    async with hosting(certificate if is_encrypted else None) as host:
        stream = await DirectBackend().connect_tcp("127.0.0.1", host.port, timeout=PATIENCE)
        if is_encrypted:
            await stream.start_tls(certificate.of_client(), HOST, PATIENCE)
        assert isinstance(stream, Connection)
        guest = await host.guest()
        sent = 0

        async def talk() -> None:
            nonlocal sent
            for _ in range(pieces):
                guest.writer.write(MEGABYTE)
                await guest.writer.drain()
                sent += 1
            guest.writer.close()

        async def is_full() -> bool:
            return len(stream._arrived) > READ_AHEAD

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(talk())
            await eventually(is_full)
            await stands_still(lambda: (sent, len(stream._arrived)))
            assert sent < pieces
            assert len(stream._arrived) < 2 * READ_AHEAD
            expected, found = hashlib.sha256(MEGABYTE * pieces), hashlib.sha256()
            found.update(await read_all(stream))
        assert found.digest() == expected.digest()
        await stream.aclose()


# --- writing --------------------------------------------------------------------------------------


async def test_a_server_that_does_not_read_is_given_up(
    backend: httpcore2.AsyncNetworkBackend, host: Host
) -> None:
    async with connected(backend, host) as (stream, guest):
        with pytest.raises(httpcore2.WriteTimeout):
            await stream.write(MEGABYTE * 16, timeout=SOON)
    await guest.has_left()


async def test_a_writer_is_told_when_the_server_leaves_meanwhile(
    backend: httpcore2.AsyncNetworkBackend, host: Host
) -> None:
    async with connected(backend, host) as (stream, guest), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(fails(stream.write(MEGABYTE * 16, timeout=PATIENCE)))
        await sleep(SOON)
        guest.reset()
        assert isinstance(await writing, httpcore2.WriteError)


async def test_a_server_that_reads_slowly_gets_everything(
    backend: httpcore2.AsyncNetworkBackend, host: Host
) -> None:
    async with connected(backend, host) as (stream, guest), asyncio.TaskGroup() as tasks:
        tasks.create_task(stream.write(MEGABYTE * 8, timeout=PATIENCE))
        read = await guest.reader.readexactly(8 * len(MEGABYTE))
    assert read == MEGABYTE * 8


# --- closing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
async def test_closing_waits_for_nobody(
    backend: httpcore2.AsyncNetworkBackend, certificate: Certificate, is_encrypted: bool
) -> None:
    """Not for a server that doesn't read, nor for one that goes on talking."""
    async with hosting(certificate if is_encrypted else None) as host:
        stream = await backend.connect_tcp("127.0.0.1", host.port, timeout=PATIENCE)
        if is_encrypted:
            stream = await stream.start_tls(certificate.of_client(), HOST, PATIENCE)
        guest = await host.guest()
        guest.writer.write(MEGABYTE * 8)
        with suppress(httpcore2.WriteTimeout):
            await stream.write(MEGABYTE * 32, timeout=SOON)
        await asyncio.wait_for(stream.aclose(), PATIENCE)
        await asyncio.wait_for(stream.aclose(), PATIENCE)
        assert await guest.has_left() < 32 * len(MEGABYTE)


async def test_a_connection_that_ended_by_itself_may_still_be_closed(host: Host) -> None:
    async with connected(DirectBackend(), host) as (stream, guest), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(fails(stream.write(MEGABYTE * 8, timeout=PATIENCE)))
        guest.writer.write_eof()
        assert await stream.read(100, timeout=PATIENCE) == b""
        await guest.reader.readexactly(8 * len(MEGABYTE))
        await guest.has_left()
        assert isinstance(await writing, httpcore2.WriteError)
