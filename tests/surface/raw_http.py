"""Bare connections for requests that are malformed on purpose."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RawHTTP:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def drip(self, pieces: list[bytes], pause: float) -> None:
        """Send one piece after the other, until the connection ends."""
        never = asyncio.Event()
        for piece in pieces:
            try:
                await self.send(piece)
            except ConnectionError:
                return
            try:
                async with asyncio.timeout(pause):
                    await never.wait()
            except TimeoutError:
                continue

    async def read_all(self) -> bytes:
        """All bytes until the server ends the connection, cleanly or not."""
        received = bytearray()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            try:
                while piece := await self.reader.read(1 << 16):
                    received += piece
            except ConnectionError:
                pass
        return bytes(received)

    async def head(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.reader.readuntil(b"\r\n\r\n")


@asynccontextmanager
async def raw_http(base: str) -> AsyncIterator[RawHTTP]:
    parts = urlsplit(base)
    connection = RawHTTP(*await asyncio.open_connection(parts.hostname, parts.port))
    try:
        yield connection
    finally:
        connection.writer.transport.abort()


def a_request(method: str, path: str, *headers: bytes, key: str, body: bytes = b"") -> bytes:
    lines = [
        b"%s %s HTTP/1.1" % (method.encode(), path.encode()),
        b"Host: localhost",
        b"Authorization: Bearer " + key.encode(),
        *headers,
    ]
    return b"\r\n".join([*lines, b"", b""]) + body
