"""A way to the database that a test can break: for everybody, or over one statement of its choice."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
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
        self._account_and_name = f"{parts.username}@{{}}{parts.path}"
        self._socket = _socket_of(database_url)
        self._silenced: set[asyncio.Task[None]] = set()
        self._is_silent = False
        self._carriers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self.port = 0
        self._cut: _Cut | None = None
        self._halt: _Halt | None = None
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
        halting: list[_Halt] = []

        async def there() -> None:
            while data := await reader.read(65_536):
                if self._is_silent or task in self._silenced:
                    continue
                if self._halts(data, halting):
                    # Who stands there says no more: what comes next is their end.
                    await reader.read(1)
                    return
                if (cut := self._cut_at(data)) is not None:
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
                if halting and _IDLE in data:
                    halting[0].reached.set()
                    await asyncio.Event().wait()
                writer.write(data)
                await writer.drain()

        try:
            await _until_one_ends(there(), back())
        finally:
            to_there.transport.abort()

    def _halts(self, data: bytes, halting: list[_Halt]) -> bool:
        """Whether what is on its way is where somebody has to stand still."""
        if self._halt is not None and self._halt.marker in data:
            halting.append(self._halt)
            self._halt = None
        if not (halting and _is_stopped(halting[0], data)):
            return False
        halting[0].reached.set()
        return True

    def _cut_at(self, data: bytes) -> "_Cut | None":
        if self._cut is None or self._cut.marker not in data:
            return None
        cut, self._cut = self._cut, None
        return cut


async def _until_one_ends(*ways: Coroutine[None, None, None]) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = {group.create_task(way) for way in ways}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def _socket_of(database_url: str) -> Path:
    query = parse_qs(urlsplit(database_url).query)
    return Path(query["host"][0]) / f".s.PGSQL.{query['port'][0]}"


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
