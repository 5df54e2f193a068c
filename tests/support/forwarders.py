"""A way to the database that a test can break: for everybody, or over one statement of its choice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_IDLE = b"Z\x00\x00\x00\x05I"
"""The server is ready and in no transaction: what was sent before is committed."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """Whoever sends the marker loses the connection, before it arrives or after it has worked."""

    marker: bytes
    arrives: bool


class Place(Enum):
    """Where on its way a statement can be stopped."""

    STATEMENT = auto()
    """Before it arrives."""
    COMMIT = auto()
    """It has worked, and the commit of its transaction doesn't arrive."""
    REPLY = auto()
    """It is committed, and whoever sent it doesn't get to know."""


@dataclass(frozen=True, slots=True)
class _Halt:
    """Whoever sends the marker waits at this place, for as long as they live."""

    marker: bytes
    place: Place
    reached: asyncio.Event = field(default_factory=asyncio.Event)


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
        self._cut: _Cut | None = None
        self._halt: _Halt | None = None
        self.cuts = 0
        """How many statements or replies were lost."""

    @property
    def url(self) -> str:
        address = self._account_and_name.format(f"127.0.0.1:{self._port}")
        return f"postgresql://{address}?sslmode=disable"

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

    def lose(self, marker: bytes) -> None:
        """Break the next connection that sends this, before it arrives."""
        self._cut = _Cut(marker, arrives=False)

    def lose_reply_to(self, marker: bytes) -> None:
        """Break the next connection that sends this, once its transaction has ended.

        Outside of transactions only a parameter will do: a statement's text is sent ahead, to prepare it.
        """
        self._cut = _Cut(marker, arrives=True)

    def halt(self, marker: bytes, place: Place) -> asyncio.Event:
        """Stop the next connection that sends this; set once it stands there."""
        self._halt = _Halt(marker, place)
        return self._halt.reached

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carriers[task] = writer
        try:
            await self._carry_both_ways(reader, writer)
        except* ConnectionError:
            pass
        finally:
            writer.transport.abort()
            del self._carriers[task]

    async def _carry_both_ways(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until one side has no more to say: then the other one has nobody to talk to."""
        from_there, to_there = await asyncio.open_unix_connection(self._socket)
        loses_reply = asyncio.Event()
        halting: list[_Halt] = []

        async def there() -> None:
            while data := await reader.read(65_536):
                if self._halt is not None and self._halt.marker in data:
                    halting.append(self._halt)
                    self._halt = None
                if halting and _is_stopped(halting[0], data):
                    halting[0].reached.set()
                    # Who stands there says no more: what comes next is their end.
                    await reader.read(1)
                    return
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
                if loses_reply.is_set() and _IDLE in data:
                    self.cuts += 1
                    return
                if halting and _IDLE in data:
                    halting[0].reached.set()
                    await asyncio.Event().wait()
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


def _is_stopped(halt: _Halt, data: bytes) -> bool:
    """Whether what is on its way to the database doesn't arrive."""
    match halt.place:
        case Place.STATEMENT:
            return True
        case Place.COMMIT:
            return b"COMMIT" in data
        case Place.REPLY:
            return False


@asynccontextmanager
async def forwarding(database_url: str) -> AsyncIterator[Forwarder]:
    forwarder = Forwarder(database_url)
    await forwarder.open()
    try:
        yield forwarder
    finally:
        await forwarder.block()
