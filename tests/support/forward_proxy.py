"""An HTTP proxy that opens tunnels to one server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.both_ways import forward_both_ways
from tests.support.controlled_server import ControlledServer
from tests.support.listeners import listening


@dataclass(slots=True)
class TunnelProxy:
    port: int = 0
    asked: list[bytes] = field(default_factory=list)
    """The head of each request for a tunnel."""


@asynccontextmanager
async def tunnel_proxy(target: ControlledServer) -> AsyncIterator[TunnelProxy]:
    """Each tunnel leads to this server, for any name that is asked for."""
    proxy = TunnelProxy()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy.asked.append(await reader.readuntil(b"\r\n\r\n"))
        upstream = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await forward_both_ways(reader, writer, *upstream)

    async with listening(serve) as proxy.port:
        yield proxy
