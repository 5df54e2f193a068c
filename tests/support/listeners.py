"""A TCP listener that a test can close at any moment.

`asyncio.Server.close` loses a connection that is just being accepted: the client waits, and the socket is open until it
is garbage (https://github.com/python/cpython/issues/109564).
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import TypeAlias

Serve: TypeAlias = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]
]


class Listener:
    """Serves each connection in a task. The connection is closed when its task ends."""

    def __init__(
        self,
        serve: Serve,
        *,
        ip: str = "127.0.0.1",
        port: int = 0,
        context: SSLContext | None = None,
    ) -> None:
        self._serve = serve
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        self._socket = socket.create_server((ip, port), family=family, backlog=100)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._loop.add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Refuse new connections, close the open ones, and wait until their tasks have ended."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client has left again
        accepted.setblocking(False)
        task = self._loop.create_task(self._serve_accepted(accepted))
        self._tasks.add(task)

        def ended(_: asyncio.Task[None]) -> None:
            accepted.close()
            self._tasks.discard(task)

        task.add_done_callback(ended)

    async def _serve_accepted(self, accepted: socket.socket) -> None:
        reader = asyncio.StreamReader()
        protocol = _Protocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._context
            )
        except OSError:
            return  # the client has left, or refused the certificate
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            await self._serve(reader, writer)
            writer.close()
            await writer.wait_closed()
        except* (OSError, asyncio.IncompleteReadError):
            pass  # a side has left
        finally:
            if not protocol.is_lost:
                transport.abort()


class _Protocol(asyncio.StreamReaderProtocol):
    """Knows whether the connection is lost: asyncio can't abort a transport that has closed after its last write."""

    is_lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        super().connection_lost(exc)


@asynccontextmanager
async def listening(
    serve: Serve, *, ip: str = "127.0.0.1", context: SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve connections on a free port; yields the port."""
    listener = Listener(serve, ip=ip, context=context)
    try:
        yield listener.port
    finally:
        await listener.close()
