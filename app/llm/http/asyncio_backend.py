"""Connections to model servers, directly on the event loop.

The HTTP stack's own backend uses anyio, which adds scopes and checkpoints around each read and write. It also
makes a system call for each idle connection when it searches for one. A short answer takes a third less time
without it.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from typing import Any, TypeAlias, cast

import httpcore2

from app.llm.http.chunk_coalescing import ChunkCoalescer
from app.llm.http.moving_timer import MovingTimer
from app.llm.http.read_pacing import UNPACED_SECONDS, ReadPacing

ADDRESS_TIMEOUT_SECONDS = 1.0
"""Seconds after which the host's next address is tried."""
PACED_BYTES = 16 * 1024
"""An answer of which more has arrived is read at once."""
_HEAD_END = b"\r\n\r\n"
READ_AHEAD = 1024 * 1024
"""Maximum bytes that wait for the reader before reading from the socket is paused."""

_Address: TypeAlias = tuple[socket.AddressFamily, str]


class DirectBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._pacing = ReadPacing()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                return await _connect(host, port, local_address, socket_options or (), self._pacing)
        except TimeoutError:
            raise httpcore2.ConnectTimeout("no connection in time") from None
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error


async def _connect(
    host: str,
    port: int,
    local_address: str | None,
    options: Iterable[httpcore2.SOCKET_OPTION],
    pacing: ReadPacing,
) -> "Connection":
    """Connect to the address of the host that answers first. The last address may take longer."""
    loop = asyncio.get_running_loop()
    local = None if local_address is None else (local_address, 0)

    async def connected(address: _Address) -> Connection:
        family, ip = address
        _, connection = await loop.create_connection(
            lambda: Connection(pacing), ip, port, family=family, local_addr=local
        )
        connection.set_options(options)
        return connection

    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    *others, last = [(family, str(address[0])) for family, _, _, _, address in found]
    late = None
    for address in others:
        try:
            async with asyncio.timeout(ADDRESS_TIMEOUT_SECONDS):
                return await connected(address)
        except TimeoutError:
            late = address
        except OSError:
            continue
    try:
        return await connected(last)
    except OSError:
        if late is None:
            raise
    return await connected(late)


class Connection(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """One connection. The event loop reports its end, so checking for it needs no system call."""

    def __init__(self, pacing: ReadPacing | None = None) -> None:
        self._pacing = pacing or ReadPacing()
        self._loop = asyncio.get_running_loop()
        self._asked_at = self._read_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._chunks = ChunkCoalescer()
        self._head = b""
        """The head of a request, until it is written together with its body."""
        self._arrived = bytearray()
        self._is_paused = False
        self._ended = False
        self._is_lost = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[bool] | None = None
        """False if nothing came in time."""
        self._patience = MovingTimer(self._give_up)
        self._writable = asyncio.Event()
        self._writable.set()

    # --- called by the loop ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        if len(self._arrived) > READ_AHEAD and not self._is_paused:
            self._is_paused = True
            self._open_transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = self._is_lost = True
        self._error = error
        self._patience.cancel()
        self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(True)

    def _give_up(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(False)

    # --- called by the HTTP stack -----------------------------------------------------------------

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._send(self._head)
        self._pacing.begin_wait()
        try:
            if (due := self._due_at()) is not None:
                await self._pacing.pause_until(due)
            return await self._read(max_bytes, timeout)
        finally:
            self._pacing.end_wait()

    async def read_chunks(self, timeout: float | None) -> bytes:
        """Read the contents of HTTP chunks without the HTTP stack. Empty if the stack has to read on."""
        self._pacing.begin_wait()
        try:
            if (due := self._due_at()) is not None:
                await self._pacing.pause_until(due)
            while self._chunks.can_take and (self._arrived or not self._ended):
                if not self._arrived:
                    await self._arrival(timeout)
                    continue
                contents, rest = self._chunks.take(self._next_bytes(READ_AHEAD))
                if rest:
                    self._arrived[:0] = rest
                if contents:
                    return contents
            return b""
        finally:
            self._pacing.end_wait()

    def _due_at(self) -> float | None:
        """When to read, if the process streams many answers: until then more tokens arrive."""
        interval = self._pacing.interval
        is_new = self._read_at - self._asked_at < UNPACED_SECONDS
        if not interval or is_new or len(self._arrived) >= PACED_BYTES or self._ended:
            return None
        return self._read_at + interval

    async def _read(self, max_bytes: int, timeout: float | None) -> bytes:
        while self._arrived or not self._ended:
            if not self._arrived:
                await self._arrival(timeout)
                continue
            if joined := self._chunks.feed(self._next_bytes(max_bytes)):
                return joined
        if self._error is not None:
            raise httpcore2.ReadError(str(self._error))
        return self._chunks.flush()

    def _next_bytes(self, max_bytes: int) -> bytes:
        data = bytes(memoryview(self._arrived)[:max_bytes])
        data = data[: self._chunks.length_in_head(data)]
        del self._arrived[: len(data)]
        if self._is_paused and not self._ended and len(self._arrived) <= READ_AHEAD // 2:
            self._is_paused = False
            self._open_transport.resume_reading()
        self._read_at = self._loop.time()
        return data

    async def _arrival(self, timeout: float | None) -> None:
        self._reader = self._loop.create_future()
        if timeout is not None:
            self._patience.wait_for(timeout)
        try:
            in_time = await self._reader
        finally:
            self._reader = None
            self._patience.rest()
        if not in_time:
            raise httpcore2.ReadTimeout("nothing came in time")

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._require_open()
        if buffer.endswith(_HEAD_END) and not self._head:
            # Its body follows at once, or the answer is read.
            self._head = buffer
            return
        if not self._send(self._head + buffer) or self._writable.is_set():
            return
        try:
            async with asyncio.timeout(timeout):
                await self._writable.wait()
        except TimeoutError:
            raise httpcore2.WriteTimeout("the server doesn't read") from None
        self._require_open()

    def _send(self, data: bytes) -> bool:
        """Write to the socket, with the head of a request that waits for it. False if there is nothing."""
        self._head = b""
        if data:
            self._chunks.begin()
            self._asked_at = self._read_at = self._loop.time()
            self._open_transport.write(data)
        return bool(data)

    def _require_open(self) -> None:
        if self._ended:
            raise httpcore2.WriteError("the server has closed the connection")

    async def aclose(self) -> None:
        """Close at once. A server that doesn't read, or doesn't end TLS, would keep the connection open."""
        if not self._is_lost:
            self._open_transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                transport = await loop.start_tls(
                    self._open_transport, self, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError:
            raise httpcore2.ConnectTimeout("no TLS in time") from None
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        assert transport is not None
        self._transport = transport
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._ended or bool(self._arrived)
        known = {"client_addr": "sockname", "server_addr": "peername"}
        return self._open_transport.get_extra_info(known.get(info, info))

    def set_options(self, options: Iterable[httpcore2.SOCKET_OPTION]) -> None:
        try:
            for option in options:
                self._open_transport.get_extra_info("socket").setsockopt(*option)
        except OSError:
            self._open_transport.abort()
            raise

    @property
    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise RuntimeError("not connected yet")
        return self._transport
