"""The pool of connections to model servers: which connections it keeps, uses again, and closes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest

from app.clock import yield_to_loop
from app.llm.http.connecting import Connector
from app.llm.http.connection import Connection
from app.llm.http.connection_pool import ModelConnections
from app.llm.http.responses import HttpResponse
from tests.support.controlled_server import ControlledServer, ServedConnection, controlled_server
from tests.support.event_loops import anyio_backend as anyio_backend
from tests.support.http_requests import (
    PATIENT,
    address_of,
    answered,
    begun,
    contents_of,
    request_to,
)
from tests.support.http_requests import asked as asked_at
from tests.support.listeners import listening

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"


@asynccontextmanager
async def open_pool(
    *, max_idle: int = 10, idle_seconds: float = 60.0
) -> AsyncIterator[ModelConnections]:
    pool = ModelConnections(
        Connector(ssl.create_default_context()), max_idle=max_idle, idle_seconds=idle_seconds
    )
    try:
        yield pool
    finally:
        pool.close()


async def asked(pool: ModelConnections, host: ControlledServer) -> HttpResponse:
    return await asked_at(pool, address_of(host))


async def opened(
    pool: ModelConnections, host: ControlledServer
) -> tuple[HttpResponse, ServedConnection]:
    """An open response on a new connection."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(asked(pool, host))
        connection = await host.connection()
        await connection.answer(b"an answer")
        return await asking, connection


async def asked_again(
    pool: ModelConnections, host: ControlledServer, served: ServedConnection
) -> HttpResponse:
    """The open response to a request on a connection that is open already."""
    response, _ = await asyncio.gather(asked(pool, host), served.answer(b"again"))
    return response


async def error_of(pool: ModelConnections, host: ControlledServer) -> httpx2.HTTPError | None:
    try:
        await asked(pool, host)
    except httpx2.HTTPError as error:
        return error
    return None


async def test_the_connection_that_was_used_last_is_used_next(host: ControlledServer) -> None:
    async with open_pool() as pool:
        first, _ = await opened(pool, host)
        second, served = await opened(pool, host)
        await contents_of(first)
        await contents_of(second)
        again = await asked_again(pool, host, served)
        assert await contents_of(again) == b"again"


async def test_a_response_that_was_not_read_to_its_end_closes_its_connection(
    host: ControlledServer,
) -> None:
    async with open_pool() as pool:
        response, served = await begun(pool, address_of(host), host, HEAD + b"a")
        assert await response.read() == b"a"
        await response.aclose()
        await response.aclose()
        assert await served.client_has_left() == 0
        assert pool.connections == []


async def test_a_cancelled_request_closes_its_connection(host: ControlledServer) -> None:
    async with open_pool() as pool:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(asked(pool, host))
            served = await host.connection()
            await served.reader.readuntil(b"\r\n\r\n")
            asking.cancel()
        assert asking.cancelled()
        assert await served.client_has_left() == 0
        assert pool.connections == []


async def test_a_request_that_is_cancelled_while_it_is_sent_closes_its_connection(
    host: ControlledServer,
) -> None:
    async with open_pool() as pool:
        async with asyncio.TaskGroup() as tasks:
            sending = pool.send(request_to(address_of(host)), b"x" * 32_000_000, PATIENT)
            asking = tasks.create_task(sending)
            served = await host.connection()
            await served.reader.readexactly(1)
            asking.cancel()
        assert asking.cancelled()
        await served.client_has_left()
        assert pool.connections == []


async def test_a_request_that_is_cancelled_while_it_connects_leaves_no_connection(
    host: ControlledServer,
) -> None:
    async with open_pool() as pool:
        for steps in range(12):
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(asked(pool, host))
                for _ in range(steps):
                    await yield_to_loop()
                asking.cancel()
            assert asking.cancelled()
            assert pool.connections == []
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(asked(pool, host))
            while not pool.connections:
                await yield_to_loop()
            last = pool.connections[0]._open_transport.get_extra_info("sockname")
            while (served := await host.connection()).writer.get_extra_info("peername") != last:
                await served.client_has_left()
            await served.answer(b"")
            await contents_of(await asking)


async def test_a_request_that_is_cancelled_at_any_moment_leaves_no_connection_in_use() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                for piece in (HEAD, b"a", b"b", b"c"):
                    if writer.is_closing():
                        return
                    writer.write(piece)
                    await yield_to_loop()

    async with listening(serve) as port, open_pool() as pool:
        for steps in range(40):
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(answered(pool, f"http://127.0.0.1:{port}/"))
                for _ in range(steps):
                    await yield_to_loop()
                asking.cancel()
            assert asking.cancelled() or asking.result() == b"abc"
            assert not pool._in_use
        assert await answered(pool, f"http://127.0.0.1:{port}/") == b"abc"


async def test_a_read_that_is_cancelled_loses_no_bytes(host: ControlledServer) -> None:
    async with open_pool() as pool:
        response, served = await begun(pool, address_of(host), host, HEAD + b"a")
        assert await response.read() == b"a"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await response.read()
        served.writer.write(b"bc")
        assert await contents_of(response) == b"bc"
        assert len(pool.connections) == 1


async def test_a_failed_connection_is_forgotten(taken_port: int) -> None:
    async with open_pool() as pool:
        with pytest.raises(httpx2.ConnectError):
            await asked(pool, ControlledServer(taken_port))
        assert pool.connections == []


async def test_a_response_that_is_not_http_closes_its_connection(host: ControlledServer) -> None:
    async with open_pool() as pool, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(error_of(pool, host))
        served = await host.connection()
        await served.reader.readuntil(b"\r\n\r\n")
        served.writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        assert isinstance(await asking, httpx2.RemoteProtocolError)
        assert await served.client_has_left() == 0
        assert pool.connections == []


async def test_more_idle_connections_than_are_kept_are_closed_the_oldest_first(
    host: ControlledServer,
) -> None:
    async with open_pool(max_idle=2) as pool:
        both = [await opened(pool, host) for _ in range(3)]
        for response, _ in both:
            await contents_of(response)
        assert len(pool.connections) == 2
        assert await both[0][1].client_has_left() == 0


async def test_an_idle_connection_is_not_used_after_its_time(host: ControlledServer) -> None:
    async with open_pool(idle_seconds=0.0) as pool:
        response, served = await opened(pool, host)
        await contents_of(response)
        again, _ = await opened(pool, host)
        assert await served.client_has_left() == 0
        await contents_of(again)


async def test_an_idle_connection_on_which_more_bytes_arrive_is_not_used(
    host: ControlledServer,
) -> None:
    async with open_pool() as pool:
        response, served = await opened(pool, host)
        await contents_of(response)
        served.writer.write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        (idle,) = pool.connections
        while idle.is_idle:
            await yield_to_loop()
        again, _ = await opened(pool, host)
        assert await contents_of(again) == b"an answer"
        assert await served.client_has_left() == 0


async def test_each_server_has_connections_of_its_own(host: ControlledServer) -> None:
    async with open_pool() as pool, controlled_server() as other:
        response, served = await opened(pool, host)
        await contents_of(response)
        of_other, _ = await opened(pool, other)
        await contents_of(of_other)
        await contents_of(await asked_again(pool, host, served))
        assert len(pool.connections) == 2


async def test_a_closed_pool_closes_all_connections(host: ControlledServer) -> None:
    async with open_pool() as pool:
        idle, first = await opened(pool, host)
        await contents_of(idle)
        await asked_again(pool, host, first)
        _, second = await opened(pool, host)
    assert await first.client_has_left() == 0
    assert await second.client_has_left() == 0
    assert pool.connections == []


async def test_a_body_is_not_complete_because_the_pool_was_closed(host: ControlledServer) -> None:
    async with open_pool() as pool:
        response, _ = await begun(pool, address_of(host), host, b"HTTP/1.1 200 OK\r\n\r\na part")
        assert await response.read() == b"a part"
        pool.close()
        with pytest.raises(httpx2.ReadError):
            await response.read()


async def test_a_pool_that_is_closed_while_a_request_connects_keeps_no_connection(
    host: ControlledServer,
) -> None:
    async with open_pool() as pool, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(error_of(pool, host))
        await yield_to_loop()
        pool.close()
        assert isinstance(await asking, httpx2.ConnectError)
        assert pool.connections == []
        assert await (await host.connection()).client_has_left() == 0


async def test_a_request_looks_at_no_connection_that_is_in_use(
    host: ControlledServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[object] = []
    is_idle = vars(Connection)["is_idle"].fget

    def watched(connection: Connection) -> bool:
        looked_at.append(connection)
        return bool(is_idle(connection))

    async with open_pool() as pool:
        monkeypatch.setattr(Connection, "is_idle", property(watched))
        used = [await opened(pool, host) for _ in range(5)]
        assert looked_at == []
        await contents_of(used[0][0])
        assert set(looked_at) == {pool.connections[-1]}
