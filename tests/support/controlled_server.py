"""A server whose answers, speed and end are controlled by the test."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support.certificates import Certificate
from tests.support.listeners import listening

TIMEOUT_SECONDS = 60.0


@dataclass(slots=True)
class ServedConnection:
    """One connection, on the server's side."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self, body: bytes) -> bytes:
        """Answer like an HTTP server; returns the request."""
        asked = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.writer.write(head + body)
        return asked

    async def client_has_left(self) -> int:
        """Wait until the client has closed or aborted; returns the number of bytes that it still sent."""
        remaining_bytes = 0
        with suppress(ConnectionError, ssl.SSLError):
            while data := await asyncio.wait_for(self.reader.read(65_536), TIMEOUT_SECONDS):
                remaining_bytes += len(data)
        return remaining_bytes

    def reset(self) -> None:
        """Reset the connection."""
        linger = b"\1\0\0\0\0\0\0\0"
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


@dataclass(slots=True)
class ControlledServer:
    port: int = 0
    connections: "asyncio.Queue[ServedConnection]" = field(default_factory=asyncio.Queue)

    async def connection(self) -> ServedConnection:
        """The next connection."""
        return await asyncio.wait_for(self.connections.get(), TIMEOUT_SECONDS)


@asynccontextmanager
async def controlled_server(
    certificate: Certificate | None = None, ip: str = "127.0.0.1"
) -> AsyncIterator[ControlledServer]:
    host, never = ControlledServer(), asyncio.Event()

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host.connections.put_nowait(ServedConnection(reader, writer))
        await never.wait()

    context = None if certificate is None else certificate.of_server()
    async with listening(welcome, ip=ip, context=context) as host.port:
        yield host
