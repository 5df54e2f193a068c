"""A way to the database that a test can block: what a network does, or a database that is restarted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class Forwarder:
    """Listens on a port of its own, and carries all that comes to the database's socket and back."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        query = parse_qs(parts.query)
        self._socket = Path(query["host"][0]) / f".s.PGSQL.{query['port'][0]}"
        self._account_and_name = f"{parts.username}@{{}}{parts.path}"
        self._carriers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"postgresql://{self._account_and_name.format(f'127.0.0.1:{self._port}')}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def block(self) -> None:
        """Refuse whoever comes, and break off what is open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._carriers.values():
            writer.transport.abort()
        if self._carriers:
            await asyncio.wait(self._carriers)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carriers[task] = writer
        try:
            from_there, to_there = await asyncio.open_unix_connection(self._socket)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, to_there))
                tasks.create_task(_pump(from_there, writer))
        finally:
            del self._carriers[task]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one direction to its end; then the other one has nobody to talk to."""
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def forwarding(database_url: str) -> AsyncIterator[Forwarder]:
    forwarder = Forwarder(database_url)
    await forwarder.open()
    try:
        yield forwarder
    finally:
        await forwarder.block()
