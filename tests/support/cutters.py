"""A proxy that cuts streams after a number of frames, in the middle of the next one."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.listeners import Listener

_FRAME = re.compile(rb"\nid: \d")
_OVERLAP = 5
"""One byte less than the shortest start of a frame, because it may arrive in two pieces."""


class Cutter:
    """Listens on a port of its own and forwards all bytes to another local port and back."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.every: int | None = None
        """The number of frames after which a connection is cut; None cuts none."""
        self.cuts = 0
        self.connections = 0
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._listener: Listener | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def port(self) -> int:
        assert self._listener is not None
        return self._listener.port

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        self._listener = Listener(self._carry)

    async def close(self) -> None:
        assert self._listener is not None
        await self._listener.close()

    def shut(self) -> None:
        """Cut open connections, and let new ones wait."""
        self._is_open.clear()
        for writer in self._open:
            writer.transport.abort()

    def open_again(self) -> None:
        self._is_open.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        self.connections += 1
        try:
            await self._is_open.wait()
            await self._carry_both_ways(reader, writer)
        finally:
            writer.transport.abort()
            self._open.discard(writer)

    async def _carry_both_ways(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            async with asyncio.TaskGroup() as ways:
                both = {
                    ways.create_task(_pass_on_requests(reader, upstream_writer)),
                    ways.create_task(self._pass_on_frames(upstream_reader, writer)),
                }
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for way in both:
                    way.cancel()
        finally:
            upstream_writer.transport.abort()

    async def _pass_on_frames(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        seen, overlap = 0, b""
        while data := await reader.read(65_536):
            window = overlap + data
            for frame in _FRAME.finditer(window):
                seen += 1
                if self.every is not None and seen > self.every:
                    self.cuts += 1
                    writer.write(window[len(overlap) : frame.end()])
                    await writer.drain()
                    return
            overlap = window[-_OVERLAP:]
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def cutting(target: int) -> AsyncIterator[Cutter]:
    cutter = Cutter(target)
    await cutter.open()
    try:
        yield cutter
    finally:
        await cutter.close()


async def _pass_on_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask for responses that are not compressed, because frames are counted in them."""
    while data := await reader.read(65_536):
        writer.write(data.replace(b"gzip", b"none"))
        await writer.drain()
