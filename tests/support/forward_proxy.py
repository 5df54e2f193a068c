"""An HTTP proxy that opens tunnels to one server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support.controlled_server import ControlledServer


@dataclass(slots=True)
class TunnelProxy:
    port: int = 0
    asked: list[bytes] = field(default_factory=list)
    """The head of each request for a tunnel."""


@asynccontextmanager
async def tunnel_proxy(target: ControlledServer) -> AsyncIterator[TunnelProxy]:
    """Each tunnel leads to this server, for any name that is asked for."""
    proxy = TunnelProxy()
    writers: list[asyncio.StreamWriter] = []

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy.asked.append(await reader.readuntil(b"\r\n\r\n"))
        from_target, to_target = await asyncio.open_connection("127.0.0.1", target.port)
        writers.extend((writer, to_target))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_forward(reader, to_target), _forward(from_target, writer))

    server = await asyncio.start_server(welcome, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
