"""The network between clients and a replica: a TCP proxy that cuts, delays, drops and stops reading."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.clock import sleep

_SMALL = 4096
"""Bytes that a connection to the replica buffers here, so that one that isn't read is soon full."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One connection, from a client and on to the replica."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter

    def cut(self) -> None:
        self.near.transport.abort()
        self.far.transport.abort()


class Road:
    """Listens on a port of its own, and carries what comes to wherever its replica listens now."""

    def __init__(self, where_to: Callable[[], int | None]) -> None:
        self._where_to = where_to
        self._ways: set[_Way] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._delay = 0.0
        self._drops = False
        self._cuts_next = False
        self.base = ""

    # --- what the nemesis may do --------------------------------------------------------------

    def cut(self) -> None:
        """Break each connection in the middle of what the replica says next."""
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
        """Lose what is sent, both ways; a connection that has lost something can't be used again."""
        self._drops = True
        try:
            yield
        finally:
            self._drops = False
            self._cut_all()

    @asynccontextmanager
    async def not_reading(self) -> AsyncIterator[None]:
        """Leave what the replica sends where it is, until its windows are full."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    # --- carrying -----------------------------------------------------------------------------

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Road"]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self._open.set()
            self._cut_all()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._where_to()
        try:
            if port is None:
                return
            from_there, to_there = await _connect(port)
            way = _Way(writer, to_there)
            self._ways.add(way)
            try:
                await self._carry_both_ways(reader, from_there, way)
            finally:
                self._ways.discard(way)
                way.cut()
        except* OSError:
            pass  # nobody listens there, or one side has gone
        finally:
            writer.transport.abort()

    async def _carry_both_ways(
        self, reader: asyncio.StreamReader, from_there: asyncio.StreamReader, way: _Way
    ) -> None:
        """Until one side has no more to say; what it has said arrives first."""
        async with asyncio.TaskGroup() as both:
            there = both.create_task(self._there(reader, way.far))
            back = both.create_task(self._back(from_there, way.near))
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            there.cancel()
            back.cancel()

    async def _there(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._pass_on(data, writer)

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._open.wait()
            if self._cuts_next:
                self._cuts_next = False
                await self._pass_on(data[: len(data) // 2], writer)
                self._cut_all()
                return
            await self._pass_on(data, writer)

    async def _pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self._delay:
            await sleep(self._delay)
        if not self._drops:
            writer.write(data)
            await writer.drain()

    def _cut_all(self) -> None:
        for way in list(self._ways):
            way.cut()


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
