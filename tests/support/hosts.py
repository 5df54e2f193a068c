"""A server that leaves everything to the test: what its guests are told, how slowly, and how it ends."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support.certificates import Certificate

PATIENCE = 10.0


@dataclass(slots=True)
class Guest:
    """One connection as the server has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self, body: bytes) -> bytes:
        """As an HTTP server does; returns what was asked."""
        asked = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.writer.write(head + body)
        return asked

    async def has_left(self) -> int:
        """Wait until the other side has closed, however rudely; what it still had to say, in bytes."""
        said = 0
        with suppress(ConnectionError, ssl.SSLError):
            while data := await asyncio.wait_for(self.reader.read(65_536), PATIENCE):
                said += len(data)
        return said

    def reset(self) -> None:
        """Close as a machine does that has forgotten the connection."""
        linger = b"\1\0\0\0\0\0\0\0"
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


@dataclass(slots=True)
class Host:
    port: int = 0
    guests: "asyncio.Queue[Guest]" = field(default_factory=asyncio.Queue)

    async def guest(self) -> Guest:
        """The next one to come."""
        return await asyncio.wait_for(self.guests.get(), PATIENCE)


@asynccontextmanager
async def hosting(
    certificate: Certificate | None = None, ip: str = "127.0.0.1"
) -> AsyncIterator[Host]:
    host = Host()
    writers = []

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        host.guests.put_nowait(Guest(reader, writer))

    context = None if certificate is None else certificate.of_server()
    server = await asyncio.start_server(welcome, ip, 0, ssl=context)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()
        for writer in writers:
            if not writer.is_closing():
                writer.transport.abort()
