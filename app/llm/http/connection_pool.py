"""The open connections to model servers.

The HTTP stack's own pool looks at every connection before and after each request, which takes half a
millisecond with 500 open answers. This one has no limit on connections, so no request waits for one: it takes
an idle connection of its server, or a new one.
"""

import ssl
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from typing import TypeAlias, cast

import httpcore2

_Server: TypeAlias = tuple[bytes, bytes, int]
_Connection: TypeAlias = httpcore2.AsyncConnectionInterface


class ModelConnections(httpcore2.AsyncConnectionPool):
    """Keeps up to `max_idle` connections of each server, for `idle_seconds`."""

    def __init__(
        self,
        context: ssl.SSLContext,
        backend: httpcore2.AsyncNetworkBackend,
        *,
        max_idle: int,
        idle_seconds: float,
    ) -> None:
        super().__init__(
            ssl_context=context, keepalive_expiry=idle_seconds, network_backend=backend
        )
        self._max_idle = max_idle
        self._idle: dict[_Server, deque[_Connection]] = {}
        """The connection that was used last is at the end."""
        self._in_use: set[_Connection] = set()

    @property
    def connections(self) -> list[_Connection]:
        return [*self._in_use, *(one for idle in self._idle.values() for one in idle)]

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        origin = request.url.origin
        server = (origin.scheme, origin.host, origin.port)
        connection = await self._idle_connection(server) or self.create_connection(origin)
        self._in_use.add(connection)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await self.release(connection, server)
            raise
        return httpcore2.Response(
            response.status,
            headers=response.headers,
            content=_PooledBody(response, connection, server, self),
            extensions=response.extensions,
        )

    async def _idle_connection(self, server: _Server) -> _Connection | None:
        """A connection that its server hasn't closed; None if there is none."""
        idle = self._idle.get(server)
        while idle:
            connection = idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def release(self, connection: _Connection, server: _Server) -> None:
        """Keep a connection whose response was read to its end, and close any other."""
        if connection not in self._in_use:
            return
        self._in_use.remove(connection)
        if connection.is_idle() and not connection.is_closed():
            self._idle.setdefault(server, deque()).append(connection)
        else:
            await connection.aclose()
        for idle in self._idle.values():
            while idle and (len(idle) > self._max_idle or idle[0].has_expired()):
                await idle.popleft().aclose()

    async def aclose(self) -> None:
        connections = self.connections
        self._in_use.clear()
        self._idle.clear()
        for connection in connections:
            await connection.aclose()


class _PooledBody:
    """The body of a response. Closing it releases the connection."""

    def __init__(
        self,
        response: httpcore2.Response,
        connection: _Connection,
        server: _Server,
        pool: ModelConnections,
    ) -> None:
        self._response = response
        self._connection = connection
        self._server = server
        self._pool = pool

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(cast(AsyncIterable[bytes], self._response.stream))

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        finally:
            await self._pool.release(self._connection, self._server)
