"""The open connections to model servers.

There is no limit on connections, so no request waits for one: it takes an idle connection of its server, or a
new one.
"""

import asyncio
from collections import deque
from contextlib import suppress

import httpx2

from app.llm.http.connecting import Connector
from app.llm.http.connection import Connection
from app.llm.http.requests import PostRequest, Server, TimeLimits
from app.llm.http.response_parser import ResponseParser
from app.llm.http.responses import HttpResponse


class ModelConnections:
    """Keeps up to `max_idle` connections of each server, for `idle_seconds`."""

    def __init__(self, connector: Connector, *, max_idle: int, idle_seconds: float) -> None:
        self._connector = connector
        self._max_idle = max_idle
        self._idle_seconds = idle_seconds
        self._idle: dict[Server, deque[tuple[Connection, float]]] = {}
        """With the time until which each is kept. The connection that was used last is at the end."""
        self._in_use: set[Connection] = set()
        self._is_closed = False

    @property
    def connections(self) -> list[Connection]:
        return [*self._in_use, *(one for idle in self._idle.values() for one, _ in idle)]

    async def send(self, request: PostRequest, body: bytes, limits: TimeLimits) -> HttpResponse:
        """Send a request and return its response when the head has arrived."""
        connection = await self._take(request.server, limits.connect)
        try:
            # A server may answer or end the connection before it has read all.
            with suppress(httpx2.WriteError):
                await connection.write(request.with_body(body), limits.answer)
            response = await _head_of_response(connection, limits.answer)
            return _PooledResponse(response, connection, request.server, self, limits.idle)
        except BaseException:
            self.release(connection, request.server, is_reusable=False)
            raise

    async def _take(self, server: Server, timeout: float) -> Connection:
        """An idle connection or a new one. It's in use until it's released."""
        connection = self._idle_connection(server)
        if connection is None:
            connection = await self._connector.connect(server, timeout)
        if self._is_closed:
            connection.close()
            raise httpx2.ConnectError("the client is closed")
        self._in_use.add(connection)
        return connection

    def _idle_connection(self, server: Server) -> Connection | None:
        """A connection that its server hasn't closed; None if there is none."""
        now = asyncio.get_running_loop().time()
        idle = self._idle.get(server)
        while idle:
            connection, until = idle.pop()
            if connection.is_idle and until > now:
                return connection
            connection.close()
        return None

    def release(self, connection: Connection, server: Server, *, is_reusable: bool) -> None:
        """Keep a connection whose response was read to its end, and close any other."""
        if connection not in self._in_use:
            return
        self._in_use.remove(connection)
        now = asyncio.get_running_loop().time()
        if is_reusable and connection.is_idle:
            kept = self._idle.setdefault(server, deque())
            kept.append((connection, now + self._idle_seconds))
        else:
            connection.close()
        for idle in self._idle.values():
            while idle and (len(idle) > self._max_idle or idle[0][1] <= now):
                idle.popleft()[0].close()

    def close(self) -> None:
        self._is_closed = True
        connections = self.connections
        self._in_use.clear()
        self._idle.clear()
        for connection in connections:
            connection.close()


class _PooledResponse(HttpResponse):
    """A response over one of the pool's connections. Closing it releases the connection."""

    def __init__(
        self,
        parser: ResponseParser,
        connection: Connection,
        server: Server,
        pool: ModelConnections,
        idle_timeout: float,
    ) -> None:
        super().__init__(parser.status, parser.headers)
        self._parser = parser
        self._connection = connection
        self._server = server
        self._pool = pool
        self._idle_timeout = idle_timeout

    @property
    def is_complete(self) -> bool:
        return self._parser.is_complete

    async def read(self) -> bytes:
        parser = self._parser
        while True:
            if contents := parser.take_body():
                return contents
            if parser.failure is not None:
                raise httpx2.RemoteProtocolError(parser.failure)
            if parser.is_complete:
                return b""
            _parse(parser, await self._connection.read(self._idle_timeout))

    async def aclose(self) -> None:
        self._pool.release(
            self._connection,
            self._server,
            is_reusable=self._parser.is_complete and self._parser.keeps_alive,
        )


async def _head_of_response(connection: Connection, timeout: float) -> ResponseParser:
    """Read the head, and what arrives with it."""
    loop = asyncio.get_running_loop()
    due = loop.time() + timeout
    response = ResponseParser()
    while not response.has_head:
        _parse(response, await connection.read(due - loop.time()))
        if response.failure is not None and not response.has_head:
            raise httpx2.RemoteProtocolError(response.failure)
    return response


def _parse(response: ResponseParser, data: bytes) -> None:
    if data:
        response.feed(data)
    else:
        response.end()
