"""The pool of connections to model servers: which connections it keeps, uses again, and closes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpcore2
import pytest

from app.llm.http.asyncio_backend import DirectBackend
from app.llm.http.connection_pool import ModelConnections
from tests.support.controlled_server import ControlledServer, ServedConnection, controlled_server

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def open_pool(
    *, max_idle: int = 10, idle_seconds: float = 60.0
) -> AsyncIterator[ModelConnections]:
    pool = ModelConnections(
        ssl.create_default_context(), DirectBackend(), max_idle=max_idle, idle_seconds=idle_seconds
    )
    async with pool:
        yield pool


async def asked(pool: ModelConnections, host: ControlledServer) -> httpcore2.Response:
    """The open response to a request."""
    request = httpcore2.Request(
        "GET", f"http://127.0.0.1:{host.port}/", headers=[("host", "127.0.0.1")]
    )
    return await pool.handle_async_request(request)


async def opened(
    pool: ModelConnections, host: ControlledServer
) -> tuple[httpcore2.Response, ServedConnection]:
    """An open response on a new connection."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(asked(pool, host))
        connection = await host.connection()
        await connection.answer(b"an answer")
        return await asking, connection


async def asked_again(
    pool: ModelConnections, host: ControlledServer, served: ServedConnection
) -> httpcore2.Response:
    """The open response to a request on a connection that is open already."""
    response, _ = await asyncio.gather(asked(pool, host), served.answer(b"again"))
    return response


async def finish(response: httpcore2.Response) -> None:
    await response.aread()
    await response.aclose()


async def test_the_connection_that_was_used_last_is_used_next(host: ControlledServer) -> None:
    async with open_pool() as pool:
        first, _ = await opened(pool, host)
        second, served = await opened(pool, host)
        await finish(first)
        await finish(second)
        again = await asked_again(pool, host, served)
        assert await again.aread() == b"again"


async def test_a_response_that_was_not_read_to_its_end_closes_its_connection(
    host: ControlledServer,
) -> None:
    async with open_pool() as pool:
        response, served = await opened(pool, host)
        await response.aclose()
        assert await served.reader.read() == b""
        assert pool.connections == []


async def test_a_cancelled_request_closes_its_connection(host: ControlledServer) -> None:
    async with open_pool() as pool:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(asked(pool, host))
            served = await host.connection()
            await served.reader.readuntil(b"\r\n\r\n")
            asking.cancel()
        assert asking.cancelled()
        assert await served.reader.read() == b""
        assert pool.connections == []


async def test_a_failed_connection_is_forgotten(taken_port: int) -> None:
    async with open_pool() as pool:
        with pytest.raises(httpcore2.ConnectError):
            await asked(pool, ControlledServer(taken_port))
        assert pool.connections == []


async def test_more_idle_connections_than_are_kept_are_closed_the_oldest_first(
    host: ControlledServer,
) -> None:
    async with open_pool(max_idle=2) as pool:
        both = [await opened(pool, host) for _ in range(3)]
        for response, _ in both:
            await finish(response)
        assert len(pool.connections) == 2
        assert await both[0][1].reader.read() == b""


async def test_an_idle_connection_is_not_used_after_its_time(host: ControlledServer) -> None:
    async with open_pool(idle_seconds=0.0) as pool:
        response, served = await opened(pool, host)
        await finish(response)
        again, _ = await opened(pool, host)
        assert await served.reader.read() == b""
        await finish(again)


async def test_each_server_has_connections_of_its_own(host: ControlledServer) -> None:
    async with open_pool() as pool, controlled_server() as other:
        response, served = await opened(pool, host)
        await finish(response)
        of_other, _ = await opened(pool, other)
        await finish(of_other)
        await finish(await asked_again(pool, host, served))
        assert len(pool.connections) == 2


async def test_a_closed_pool_closes_all_connections(host: ControlledServer) -> None:
    async with open_pool() as pool:
        idle, first = await opened(pool, host)
        await finish(idle)
        await asked_again(pool, host, first)
        _, second = await opened(pool, host)
    assert await first.reader.read() == b""
    assert await second.reader.read() == b""


async def test_a_request_looks_at_no_connection_that_is_in_use(
    host: ControlledServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[object] = []

    class Watched(httpcore2.AsyncHTTPConnection):
        def has_expired(self) -> bool:
            looked_at.append(self)
            return super().has_expired()

        def is_idle(self) -> bool:
            looked_at.append(self)
            return super().is_idle()

    async with open_pool() as pool:
        monkeypatch.setattr("httpcore2._async.connection_pool.AsyncHTTPConnection", Watched)
        used = [await opened(pool, host) for _ in range(5)]
        assert looked_at == []
        await finish(used[0][0])
        assert set(looked_at) <= {pool.connections[-1]}
