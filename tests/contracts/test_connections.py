"""Connections to model servers, on both event loops."""

import asyncio
import hashlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeAlias

import httpx2
import pytest

from app.clock import sleep, yield_to_loop
from app.llm.http.connecting import Connector
from app.llm.http.connection import PACED_BYTES, READ_AHEAD, Connection
from app.llm.http.read_pacing import ReadPacing
from app.llm.http.requests import Server
from tests.support.certificates import HOST, Certificate
from tests.support.conditions import eventually
from tests.support.controlled_server import (
    TIMEOUT_SECONDS,
    ControlledServer,
    ServedConnection,
    controlled_server,
)
from tests.support.event_loops import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio

SHORT_TIMEOUT_SECONDS = 0.1
MEGABYTE = os.urandom(1024 * 1024)


def connector(context: ssl.SSLContext | None = None) -> Connector:
    return Connector(context or ssl.create_default_context())


def plain(port: int, name: str = "127.0.0.1") -> Server:
    return Server(name, port, is_encrypted=False)


async def encrypted(
    host: ControlledServer,
    context: ssl.SSLContext,
    name: str = HOST,
    timeout: float = TIMEOUT_SECONDS,
) -> Connection:
    return await connector(context).connect(Server(name, host.port, is_encrypted=True), timeout)


@asynccontextmanager
async def connected(
    host: ControlledServer, opening: Connector | None = None
) -> AsyncIterator[tuple[Connection, ServedConnection]]:
    """A connection, and the server's side of it."""
    opened = await (opening or connector()).connect(plain(host.port), TIMEOUT_SECONDS)
    try:
        yield opened, await host.connection()
    finally:
        opened.close()


@asynccontextmanager
async def connected_to_any(
    certificate: Certificate | None,
) -> AsyncIterator[tuple[Connection, ServedConnection]]:
    """The same with a server that has TLS if there is a certificate."""
    async with controlled_server(certificate) as host:
        if certificate is None:
            async with connected(host) as both:
                yield both
            return
        opened = await encrypted(host, certificate.of_client())
        try:
            yield opened, await host.connection()
        finally:
            opened.close()


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def any_certificate(request: pytest.FixtureRequest, certificate: Certificate) -> Certificate | None:
    return certificate if request.param else None


async def fails(call: Awaitable[object]) -> Exception:
    try:
        await call
    except Exception as error:  # noqa: BLE001  the caller checks its type
        return error
    raise AssertionError("the call did not fail")


async def until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(holds)


async def settled(value: Callable[[], object]) -> None:
    """Wait until `value` returns the same twice in a row."""
    before = None
    while (now := value()) != before:
        before = now
        await sleep(SHORT_TIMEOUT_SECONDS)


async def read_all(opened: Connection) -> bytes:
    read = bytearray()
    while data := await opened.read(TIMEOUT_SECONDS):
        read += data
    return bytes(read)


# --- connecting -----------------------------------------------------------------------------------


async def test_a_refusal_is_an_error(taken_port: int) -> None:
    with pytest.raises(httpx2.ConnectError):
        await connector().connect(plain(taken_port), TIMEOUT_SECONDS)


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("name", ["unknown.invalid", "a..b", "x" * 64, ".invalid", "1.2.3.4.5", ""])
async def test_a_host_that_cannot_exist_is_an_error(name: str, is_encrypted: bool) -> None:
    with pytest.raises(httpx2.ConnectError):
        await connector().connect(Server(name, 1, is_encrypted), TIMEOUT_SECONDS)


@contextmanager
def unaccepted_listener(ip: str, port: int = 0) -> Iterator[socket.socket]:
    """Listens with a full backlog: a new connection hangs until one is accepted."""
    with socket.socket() as listening, socket.socket() as queued:
        listening.bind((ip, port))
        listening.listen(0)
        queued.connect(listening.getsockname())
        yield listening


async def test_a_slow_connect_times_out() -> None:
    with unaccepted_listener("127.0.0.1") as listening, pytest.raises(httpx2.ConnectTimeout):
        await connector().connect(plain(listening.getsockname()[1]), SHORT_TIMEOUT_SECONDS)


async def test_an_address_of_ip_version_6_is_reached() -> None:
    async with controlled_server(ip="::1") as host:
        opened = await connector().connect(plain(host.port, "::1"), TIMEOUT_SECONDS)
        served = await host.connection()
        await opened.write(b"a question", TIMEOUT_SECONDS)
        assert await served.reader.readexactly(10) == b"a question"
        opened.close()


async def test_small_writes_are_sent_at_once(host: ControlledServer) -> None:
    async with connected(host) as (opened, _):
        socket_of = opened._open_transport.get_extra_info("socket")
        assert socket_of.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# --- several addresses ----------------------------------------------------------------------------

FIRST, SECOND, THIRD = "127.0.0.1", "127.0.0.2", "127.0.0.3"


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ips: str) -> None:
    """Every name resolves to these addresses, and the time-out per address is short."""

    async def resolve(host: str, port: int, **_: object) -> list[object]:
        addresses = [host] if host in ips else ips
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr("app.llm.http.connecting.ADDRESS_TIMEOUT_SECONDS", SHORT_TIMEOUT_SECONDS)


@pytest.fixture
async def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, FIRST, SECOND)


async def reached(port: int) -> str:
    """The address that a connection to the host reaches."""
    opened = await connector().connect(plain(port, "twofold.test"), TIMEOUT_SECONDS)
    try:
        ip: str = opened._open_transport.get_extra_info("peername")[0]
        return ip
    finally:
        opened.close()


@pytest.mark.usefixtures("two_addresses")
async def test_the_next_address_is_tried_when_one_refuses_or_is_slow() -> None:
    async with controlled_server(ip=SECOND) as host:
        assert await reached(host.port) == SECOND
        with unaccepted_listener(FIRST, host.port):
            assert await reached(host.port) == SECOND


async def test_each_address_is_tried_until_one_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, FIRST, SECOND, THIRD)
    async with controlled_server(ip=SECOND) as host:
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
    with pytest.raises(httpx2.ConnectError):
        await reached(taken_port)


@pytest.mark.usefixtures("two_addresses")
async def test_a_slow_agreement_on_tls_is_not_taken_for_a_slow_address(
    certificate: Certificate,
) -> None:
    async with controlled_server(ip=FIRST) as host, asyncio.TaskGroup() as tasks:
        connecting = tasks.create_task(fails(encrypted(host, certificate.of_client())))
        served = await host.connection()
        hello = await served.reader.read(1)
        await sleep(3 * SHORT_TIMEOUT_SECONDS)
        assert hello
        assert not connecting.done()
        served.writer.close()
        assert isinstance(await connecting, httpx2.ConnectError)
        assert host.connections.empty()


# --- TLS ------------------------------------------------------------------------------------------


async def test_tls_transfers_all_bytes(certificate: Certificate) -> None:
    async with connected_to_any(certificate) as (opened, served):
        await opened.write(b"a question", TIMEOUT_SECONDS)
        assert await served.reader.readexactly(10) == b"a question"
        served.writer.write(MEGABYTE)
        served.writer.close()
        assert await read_all(opened) == MEGABYTE
        tls = opened._open_transport.get_extra_info("ssl_object")
        assert tls.version() == "TLSv1.3"


async def test_a_certificate_that_is_not_trusted_is_an_error(certificate: Certificate) -> None:
    async with controlled_server(certificate) as host:
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await encrypted(host, ssl.create_default_context())
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await encrypted(host, certificate.of_client(), name="127.0.0.1")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_a_server_without_tls_is_an_error(
    host: ControlledServer, certificate: Certificate, answer: bytes
) -> None:
    async with asyncio.TaskGroup() as tasks:
        connecting = tasks.create_task(fails(encrypted(host, certificate.of_client())))
        served = await host.connection()
        served.writer.write(answer)
        served.writer.close()
    assert isinstance(connecting.result(), httpx2.ConnectError)


async def test_a_slow_tls_handshake_times_out_and_closes_the_connection(
    host: ControlledServer, certificate: Certificate
) -> None:
    with pytest.raises(httpx2.ConnectTimeout):
        await encrypted(host, certificate.of_client(), timeout=SHORT_TIMEOUT_SECONDS)
    await (await host.connection()).client_has_left()


async def test_a_cancelled_tls_handshake_closes_the_connection(
    host: ControlledServer, certificate: Certificate
) -> None:
    async with asyncio.TaskGroup() as tasks:
        connecting = tasks.create_task(encrypted(host, certificate.of_client()))
        served = await host.connection()
        await served.reader.read(1)
        connecting.cancel()
    assert connecting.cancelled()
    await served.client_has_left()


# --- reading --------------------------------------------------------------------------------------


async def test_a_read_after_a_read_timeout_gets_the_late_bytes(host: ControlledServer) -> None:
    async with connected(host) as (opened, served):
        with pytest.raises(httpx2.ReadTimeout):
            await opened.read(SHORT_TIMEOUT_SECONDS)
        served.writer.write(b"late")
        assert await opened.read(TIMEOUT_SECONDS) == b"late"


async def test_bytes_that_arrive_together_with_the_time_out_are_read(
    host: ControlledServer,
) -> None:
    async with connected(host) as (opened, _), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(opened.read(TIMEOUT_SECONDS))
        await yield_to_loop()
        opened.data_received(b"in time")
        opened._give_up()
        assert await reading == b"in time"
        failing = tasks.create_task(fails(opened.read(TIMEOUT_SECONDS)))
        await yield_to_loop()
        opened._give_up()
        opened.data_received(b"late")
        assert isinstance(await failing, httpx2.ReadTimeout)
        assert await opened.read(TIMEOUT_SECONDS) == b"late"


async def test_a_cancelled_read_loses_no_bytes(host: ControlledServer) -> None:
    async with connected(host) as (opened, served):
        for _ in range(20):
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(opened.read(TIMEOUT_SECONDS))
                await sleep(0)
                served.writer.write(b"word")
                reading.cancel()
            read = b"" if reading.cancelled() else reading.result()
            while len(read) < 4:
                read += await opened.read(TIMEOUT_SECONDS)
            assert read == b"word"


async def test_bytes_sent_before_the_server_closed_are_read(
    any_certificate: Certificate | None,
) -> None:
    async with connected_to_any(any_certificate) as (opened, served):
        served.writer.write(b"good")
        served.writer.write(b"bye")
        served.writer.close()
        assert await read_all(opened) == b"goodbye"
        assert await opened.read(TIMEOUT_SECONDS) == b""


async def test_a_connection_reset_is_a_read_error(host: ControlledServer) -> None:
    async with connected(host) as (opened, served):
        served.reset()
        for _ in range(2):
            with pytest.raises(httpx2.ReadError):
                await opened.read(TIMEOUT_SECONDS)


async def test_reading_ahead_is_bounded_and_loses_no_bytes(
    any_certificate: Certificate | None,
) -> None:
    pieces, sent = 32, 0
    expected, found = hashlib.sha256(MEGABYTE * pieces), hashlib.sha256()
    async with connected_to_any(any_certificate) as (opened, served):

        async def send() -> None:
            nonlocal sent
            for _ in range(pieces):
                served.writer.write(MEGABYTE)
                await served.writer.drain()
                sent += 1
            served.writer.close()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            for _ in range(2):
                await until(lambda: len(opened._arrived) > READ_AHEAD)
                await settled(lambda: (sent, len(opened._arrived)))
                assert sent < pieces
                assert len(opened._arrived) < 2 * READ_AHEAD
                found.update(await opened.read(TIMEOUT_SECONDS))
            found.update(await read_all(opened))
        assert found.digest() == expected.digest()


# --- idle connections -----------------------------------------------------------------------------


async def test_a_connection_is_idle_until_its_server_sends_something_or_ends_it(
    any_certificate: Certificate | None,
) -> None:
    async with connected_to_any(any_certificate) as (opened, served):
        assert opened.is_idle
        served.writer.write(b"unasked")
        await until(lambda: not opened.is_idle)
        assert await opened.read(TIMEOUT_SECONDS) == b"unasked"
        assert opened.is_idle
        served.writer.close()
        await until(lambda: not opened.is_idle)


async def test_a_connection_is_not_idle_before_all_was_sent(host: ControlledServer) -> None:
    async with connected(host) as (opened, served), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(opened.write(MEGABYTE * 16, TIMEOUT_SECONDS))
        await sleep(0)
        served.writer.write(b"an early answer")
        await writing
        assert await opened.read(TIMEOUT_SECONDS) == b"an early answer"
        assert not opened.is_idle
        await served.reader.readexactly(16 * len(MEGABYTE))
        await until(lambda: opened.is_idle)


# --- writing --------------------------------------------------------------------------------------


async def test_a_write_to_a_server_that_does_not_read_times_out(host: ControlledServer) -> None:
    async with connected(host) as (opened, served):
        with pytest.raises(httpx2.WriteTimeout):
            await opened.write(MEGABYTE * 16, SHORT_TIMEOUT_SECONDS)
    await served.client_has_left()


async def test_a_connection_reset_during_a_write_is_a_write_error(host: ControlledServer) -> None:
    async with connected(host) as (opened, served), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(fails(opened.write(MEGABYTE * 16, TIMEOUT_SECONDS)))
        await sleep(SHORT_TIMEOUT_SECONDS)
        served.reset()
        assert isinstance(await writing, httpx2.WriteError)
        assert isinstance(await fails(opened.write(b"more", TIMEOUT_SECONDS)), httpx2.WriteError)


async def test_a_server_that_reads_slowly_gets_everything(host: ControlledServer) -> None:
    async with connected(host) as (opened, served), asyncio.TaskGroup() as tasks:
        tasks.create_task(opened.write(MEGABYTE * 8, TIMEOUT_SECONDS))
        read = await served.reader.readexactly(8 * len(MEGABYTE))
    assert read == MEGABYTE * 8


# --- closing --------------------------------------------------------------------------------------


async def test_closing_does_not_wait_for_the_server(any_certificate: Certificate | None) -> None:
    """Neither for a server that doesn't read, nor for one that keeps sending."""
    async with connected_to_any(any_certificate) as (opened, served):
        served.writer.write(MEGABYTE * 8)
        with suppress(httpx2.WriteTimeout):
            await opened.write(MEGABYTE * 32, SHORT_TIMEOUT_SECONDS)
        opened.close()
        opened.close()
        assert await served.client_has_left() < 32 * len(MEGABYTE)


async def test_a_reader_learns_that_its_connection_was_closed(host: ControlledServer) -> None:
    """The end of a body that ends with its connection would look the same."""
    async with connected(host) as (opened, _), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(fails(opened.read(TIMEOUT_SECONDS)))
        await sleep(0)
        opened.close()
        assert isinstance(await reading, httpx2.ReadError)
        assert isinstance(await fails(opened.read(TIMEOUT_SECONDS)), httpx2.ReadError)
        assert isinstance(await fails(opened.write(b"more", TIMEOUT_SECONDS)), httpx2.WriteError)


async def test_a_connection_that_the_server_ended_can_be_closed(host: ControlledServer) -> None:
    async with connected(host) as (opened, served), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(fails(opened.write(MEGABYTE * 8, TIMEOUT_SECONDS)))
        served.writer.write_eof()
        assert await opened.read(TIMEOUT_SECONDS) == b""
        await served.reader.readexactly(8 * len(MEGABYTE))
        await served.client_has_left()
        assert isinstance(await writing, httpx2.WriteError)


# --- many answers at once -------------------------------------------------------------------------


class PausesUntilReleased(ReadPacing):
    """A pacing whose pauses a test ends."""

    def __init__(self) -> None:
        super().__init__()
        self.is_pausing, self.released = asyncio.Event(), asyncio.Event()
        self.due = 0.0

    @property
    def interval(self) -> float:
        return 60.0

    async def pause_until(self, due: float) -> None:
        self.due = due
        self.is_pausing.set()
        await self.released.wait()


Paced: TypeAlias = tuple[Connector, PausesUntilReleased]


def paced_connector() -> Paced:
    opening, pacing = connector(), PausesUntilReleased()
    opening._pacing = pacing
    return opening, pacing


@pytest.fixture
def paced_at_once(monkeypatch: pytest.MonkeyPatch) -> Paced:
    """Its connections are paced from the first read on."""
    monkeypatch.setattr("app.llm.http.connection.UNPACED_SECONDS", 0.0)
    return paced_connector()


async def test_what_arrives_during_a_pause_is_read_at_once(
    host: ControlledServer, paced_at_once: Paced
) -> None:
    opening, pacing = paced_at_once
    async with connected(host, opening) as (opened, served), asyncio.TaskGroup() as tasks:
        served.writer.write(b"one ")
        reading = tasks.create_task(opened.read(TIMEOUT_SECONDS))
        await pacing.is_pausing.wait()
        assert pacing.due == opened._read_at + pacing.interval
        served.writer.write(b"two")
        await until(lambda: bytes(opened._arrived) == b"one two")
        pacing.released.set()
        assert await reading == b"one two"


async def test_an_answer_of_which_much_has_arrived_is_not_paced(
    host: ControlledServer, paced_at_once: Paced
) -> None:
    opening, _ = paced_at_once
    async with connected(host, opening) as (opened, served):
        served.writer.write(b"x" * PACED_BYTES)
        await until(lambda: len(opened._arrived) == PACED_BYTES)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert len(await opened.read(TIMEOUT_SECONDS)) == PACED_BYTES


async def test_the_end_of_an_answer_is_not_paced(
    host: ControlledServer, paced_at_once: Paced
) -> None:
    opening, _ = paced_at_once
    async with connected(host, opening) as (opened, served):
        served.writer.write(b"the end")
        served.writer.close()
        await until(lambda: opened._has_ended)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await read_all(opened) == b"the end"


async def test_the_first_moments_of_an_answer_are_not_paced(host: ControlledServer) -> None:
    opening, _ = paced_connector()
    async with connected(host, opening) as (opened, served):
        await opened.write(b"a question", TIMEOUT_SECONDS)
        served.writer.write(b"an answer")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await opened.read(TIMEOUT_SECONDS) == b"an answer"
