"""A proxy for the database that a test can break: for all connections, or at one statement."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.listeners import Listener

_IDLE = b"Z\x00\x00\x00\x05I"
"""The server is ready and in no transaction: earlier statements are committed."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """The connection that sends the marker is closed, before the statement arrives or after its reply."""

    marker: bytes
    arrives: bool


class Place(Enum):
    """Where a statement can be stopped."""

    STATEMENT = auto()
    """It does not reach the server."""
    COMMIT = auto()
    """It was executed, and the COMMIT of its transaction does not arrive."""
    REPLY = auto()
    """It is committed, and the reply does not reach its client."""


@dataclass(frozen=True, slots=True)
class _Halt:
    """The connection that sends the marker waits at this place for ever."""

    marker: bytes
    place: Place
    reached: asyncio.Event = field(default_factory=asyncio.Event)


class Forwarder:
    """Listens on a port of its own, and forwards all bytes to the database's socket and back."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        self._account_and_name = f"{parts.username}@{{}}{parts.path}"
        self._socket = _socket_of(database_url)
        self._dropped: set[asyncio.Task[None]] = set()
        self._drops_all = False
        self._carriers: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None
        self.port = 0
        self._cut: _Cut | None = None
        self._halt: _Halt | None = None
        self.cuts = 0
        """The number of lost statements and replies."""

    @property
    def url(self) -> str:
        address = self._account_and_name.format(f"127.0.0.1:{self.port}")
        return f"postgresql://{address}?sslmode=disable"

    async def open(self) -> None:
        self._listener = Listener(self._carry, port=self.port)
        self.port = self._listener.port

    async def block(self) -> None:
        """Refuse new connections, and close the open ones."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    def lead_to(self, database_url: str) -> None:
        """Forward new connections to another server."""
        self._socket = _socket_of(database_url)

    def drop_traffic_of_open_connections(self) -> None:
        """Drop all bytes of open connections without closing them; new connections work.

        A firewall that has lost its state behaves so.
        """
        self._dropped.update(self._carriers)

    def drop_all_traffic(self) -> None:
        """Drop all bytes of open and new connections, without closing them."""
        self._drops_all = True

    def lose(self, marker: bytes) -> None:
        """Close the next connection that sends this, before it arrives."""
        self._cut = _Cut(marker, arrives=False)

    def lose_reply_to(self, marker: bytes) -> None:
        """Close the next connection that sends this, after its transaction has ended.

        Outside of a transaction the marker must be a parameter: the text is sent earlier, by PREPARE.
        """
        self._cut = _Cut(marker, arrives=True)

    def halt(self, marker: bytes, place: Place) -> asyncio.Event:
        """Stop the next connection that sends this; the returned event is set when it has stopped."""
        self._halt = _Halt(marker, place)
        return self._halt.reached

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carriers.add(task)
        try:
            await self._carry_both_ways(reader, writer)
        finally:
            writer.transport.abort()
            self._carriers.discard(task)
            self._dropped.discard(task)

    async def _carry_both_ways(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward in both directions until one side closes; then close the other."""
        database_reader, database_writer = await asyncio.open_unix_connection(self._socket)
        loses_reply = asyncio.Event()
        task = asyncio.current_task()
        halting: list[_Halt] = []

        async def to_database() -> None:
            while data := await reader.read(65_536):
                if self._drops_all or task in self._dropped:
                    continue
                if self._halts(data, halting):
                    # A stopped client sends nothing more: the next byte is its end.
                    await reader.read(1)
                    return
                if (cut := self._cut_at(data)) is not None:
                    if not cut.arrives:
                        self.cuts += 1
                        return
                    loses_reply.set()
                database_writer.write(data)
                await database_writer.drain()

        async def to_client() -> None:
            while data := await database_reader.read(65_536):
                if self._drops_all or task in self._dropped:
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
            await _until_one_ends(to_database(), to_client())
        finally:
            database_writer.transport.abort()

    def _halts(self, data: bytes, halting: list[_Halt]) -> bool:
        """Whether these bytes of the client reach the halt."""
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
    """Whether the halt keeps these bytes from the database."""
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
