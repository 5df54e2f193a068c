"""The network between clients and a replica: a TCP proxy that cuts, delays, drops and stops reading."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.clock import sleep
from tests.support.listeners import listening

_SMALL = 4096
"""Receive buffer of a connection to the replica, small so that an unread connection fills soon."""


@dataclass(frozen=True, slots=True)
class _Connection:
    """One connection from a client through to the replica."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter

    def cut(self) -> None:
        self.near.transport.abort()
        self.far.transport.abort()


class FaultyProxy:
    """Listens on its own port, and forwards connections to the current port of its replica."""

    def __init__(self, target_port: Callable[[], int | None]) -> None:
        self._target_port = target_port
        self._connections: set[_Connection] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._delay = 0.0
        self._drops = False
        self._cuts_next = False
        self.base = ""

    # --- faults -------------------------------------------------------------------------------

    def cut(self) -> None:
        """Break each connection in the middle of the replica's next bytes."""
        self._cuts_next = True

    @asynccontextmanager
    async def delaying(self, seconds: float) -> AsyncIterator[None]:
        self._delay = seconds
        try:
            yield
        finally:
            self._delay = 0.0

    @asynccontextmanager
    async def dropping(self) -> AsyncIterator[None]:
        """Drop bytes in both directions; the affected connections are cut afterwards."""
        self._drops = True
        try:
            yield
        finally:
            self._drops = False
            self._cut_all()

    @asynccontextmanager
    async def not_reading(self) -> AsyncIterator[None]:
        """Stop reading from the replica, until its send buffers are full."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    # --- forwarding ---------------------------------------------------------------------------

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["FaultyProxy"]:
        async with listening(self._forward) as port:
            self.base = f"http://127.0.0.1:{port}"
            yield self

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._target_port()
        if port is None:
            return
        from_there, to_there = await _connect(port)
        connection = _Connection(writer, to_there)
        self._connections.add(connection)
        try:
            await self._forward_both_directions(reader, from_there, connection)
        finally:
            self._connections.discard(connection)
            connection.cut()

    async def _forward_both_directions(
        self,
        reader: asyncio.StreamReader,
        from_there: asyncio.StreamReader,
        connection: _Connection,
    ) -> None:
        """Forward until one side ends; bytes that it sent before still arrive."""
        async with asyncio.TaskGroup() as both:
            there = both.create_task(self._to_replica(reader, connection.far))
            back = both.create_task(self._to_client(from_there, connection.near))
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            there.cancel()
            back.cancel()

    async def _to_replica(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._write(data, writer)

    async def _to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._open.wait()
            if self._cuts_next:
                self._cuts_next = False
                await self._write(data[: len(data) // 2], writer)
                self._cut_all()
                return
            await self._write(data, writer)

    async def _write(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self._delay:
            await sleep(self._delay)
        if not self._drops:
            writer.write(data)
            await writer.drain()

    def _cut_all(self) -> None:
        for connection in list(self._connections):
            connection.cut()


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    there = socket.socket()
    try:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
        there.setblocking(False)
        await asyncio.get_running_loop().sock_connect(there, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=there, limit=_SMALL)
    except BaseException:
        there.close()
        raise
