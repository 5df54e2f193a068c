"""A way to the database that a test can break: for everybody, or over one statement of its choice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_IDLE = b"Z\x00\x00\x00\x05I"
"""The server is ready and in no transaction: what was sent before is committed."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """Whoever sends the marker loses the connection, before it arrives or after it has worked."""

    marker: bytes
    arrives: bool


class Forwarder:
    """Listens on a port of its own, and carries all that comes to the database's socket and back."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        self._account_and_name = f"{parts.username}@{{}}{parts.path}"
        self._socket = _socket_of(database_url)
        self._silenced: set[asyncio.Task[None]] = set()
        self._is_silent = False
        self._carriers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self.port = 0
        self._cut: _Cut | None = None
        self.cuts = 0
        """How many statements or replies were lost."""

    @property
    def url(self) -> str:
        address = self._account_and_name.format(f"127.0.0.1:{self.port}")
        return f"postgresql://{address}?sslmode=disable"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def block(self) -> None:
        """Refuse whoever comes, and break off what is open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._carriers.values():
            writer.transport.abort()
        if self._carriers:
            await asyncio.wait(self._carriers)

    def lead_to(self, database_url: str) -> None:
        """Carry whoever comes from now on to another server, at the same address."""
        self._socket = _socket_of(database_url)

    def silence(self) -> None:
        """Carry nothing more over the connections that are open, and tell nobody; new ones are carried.

        As a firewall does that has forgotten them.
        """
        self._silenced.update(self._carriers)

    def silence_for_ever(self) -> None:
        """Carry nothing more, over new connections neither: nobody hears of anything."""
        self._is_silent = True

    def lose(self, marker: bytes) -> None:
        """Break the next connection that sends this, before it arrives."""
        self._cut = _Cut(marker, arrives=False)

    def lose_reply_to(self, marker: bytes) -> None:
        """Break the next connection that sends this, once its transaction has ended.

        Outside of transactions only a parameter will do: a statement's text is sent ahead, to prepare it.
        """
        self._cut = _Cut(marker, arrives=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carriers[task] = writer
        try:
            await self._carry_both_ways(reader, writer)
        except* OSError:
            # One side has gone, or nobody was there.
            pass
        finally:
            writer.transport.abort()
            del self._carriers[task]
            self._silenced.discard(task)

    async def _carry_both_ways(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until one side has no more to say: then the other one has nobody to talk to."""
        from_there, to_there = await asyncio.open_unix_connection(self._socket)
        loses_reply = asyncio.Event()
        task = asyncio.current_task()

        async def there() -> None:
            while data := await reader.read(65_536):
                if self._is_silent or task in self._silenced:
                    continue
                if self._cut is not None and self._cut.marker in data:
                    cut, self._cut = self._cut, None
                    if not cut.arrives:
                        self.cuts += 1
                        return
                    loses_reply.set()
                to_there.write(data)
                await to_there.drain()

        async def back() -> None:
            while data := await from_there.read(65_536):
                if self._is_silent or task in self._silenced:
                    continue
                if loses_reply.is_set() and _IDLE in data:
                    self.cuts += 1
                    return
                writer.write(data)
                await writer.drain()

        try:
            async with asyncio.TaskGroup() as ways:
                both = {ways.create_task(there()), ways.create_task(back())}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for way in both:
                    way.cancel()
        finally:
            to_there.transport.abort()


def _socket_of(database_url: str) -> Path:
    query = parse_qs(urlsplit(database_url).query)
    return Path(query["host"][0]) / f".s.PGSQL.{query['port'][0]}"


@asynccontextmanager
async def forwarding(database_url: str) -> AsyncIterator[Forwarder]:
    forwarder = Forwarder(database_url)
    await forwarder.open()
    try:
        yield forwarder
    finally:
        await forwarder.block()
