"""A wire to Postgres that breaks exactly when a commit has landed, and before anybody is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

_IDLE = b"Z\x00\x00\x00\x05I"
"""The server is ready and in no transaction: what was sent before is committed."""


class LossyProxy:
    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._marker: bytes | None = None
        self.cuts = 0
        """How many replies were lost."""

    def lose_reply_to(self, marker: str) -> None:
        """Break the next connection that sends these words, once their transaction has ended."""
        self._marker = marker.encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._socket)
        marked = asyncio.Event()

        async def forward() -> None:
            while data := await reader.read(65536):
                if self._marker is not None and self._marker in data:
                    self._marker = None
                    marked.set()
                to_server.write(data)
                await to_server.drain()

        async def answer() -> None:
            while data := await from_server.read(65536):
                if marked.is_set() and _IDLE in data:
                    self.cuts += 1
                    return
                writer.write(data)
                await writer.drain()

        try:
            async with asyncio.TaskGroup() as ways:
                forwarding = ways.create_task(forward())
                answering = ways.create_task(answer())
                await asyncio.wait({forwarding, answering}, return_when=asyncio.FIRST_COMPLETED)
                forwarding.cancel()
                answering.cancel()
        except* ConnectionError:
            pass
        finally:
            for side in (to_server, writer):
                side.transport.abort()


@asynccontextmanager
async def lossy_proxy(url: str) -> AsyncIterator[tuple[LossyProxy, str]]:
    """A proxy before the server of this URL, which is reached by a socket file, and its own URL."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    proxy = LossyProxy(f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}")
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield proxy, f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?sslmode=disable"
    finally:
        server.close()
