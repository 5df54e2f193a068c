"""One connection to a model server: bytes in, bytes out, with time-outs, directly on the event loop."""

import asyncio
from typing import cast

import httpx2

from app.llm.http.moving_timer import MovingTimer
from app.llm.http.read_pacing import UNPACED_SECONDS, ReadPacing

PACED_BYTES = 16 * 1024
"""An answer of which more has arrived is read at once."""
READ_AHEAD = 1024 * 1024
"""Maximum bytes that wait for the reader before reading from the socket is paused."""


class Connection(asyncio.Protocol):
    """The event loop reports the end of the connection, so checking for it needs no system call."""

    def __init__(self, pacing: ReadPacing) -> None:
        self._pacing = pacing
        self._loop = asyncio.get_running_loop()
        self._asked_at = self._read_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._arrived = bytearray()
        self._is_paused = False
        self._has_ended = False
        self._is_lost = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[bool] | None = None
        """False if nothing came in time."""
        self._patience = MovingTimer(self._give_up)
        self._write_done = asyncio.Event()
        """Set if no request waits to be sent, or its server has answered or ended the connection."""
        self._write_done.set()

    # --- called by the loop ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        if len(self._arrived) > READ_AHEAD and not self._is_paused:
            self._is_paused = True
            self._open_transport.pause_reading()
        self._write_done.set()
        self._wake()

    def eof_received(self) -> None:
        self._has_ended = True
        self._write_done.set()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._has_ended = self._is_lost = True
        self._error = self._error or error
        self._patience.cancel()
        self._write_done.set()
        self._wake()

    def pause_writing(self) -> None:
        self._write_done.clear()

    def resume_writing(self) -> None:
        self._write_done.set()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(True)

    def _give_up(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(False)

    # --- called for requests ----------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open, all was sent, and the server has sent nothing that wasn't read."""
        if self._has_ended or self._arrived:
            return False
        return self._open_transport.get_write_buffer_size() == 0

    async def write(self, data: bytes, timeout: float) -> None:
        """Send a request, or as much of it as the server reads before it answers or ends the connection."""
        if self._has_ended:
            raise httpx2.WriteError("the server has closed the connection")
        self._asked_at = self._read_at = self._loop.time()
        self._open_transport.write(data)
        if self._write_done.is_set():
            return
        try:
            async with asyncio.timeout(timeout):
                await self._write_done.wait()
        except TimeoutError:
            raise httpx2.WriteTimeout("the server doesn't read") from None
        if self._has_ended:
            raise httpx2.WriteError("the server has closed the connection")

    async def read(self, timeout: float) -> bytes:
        """Return all bytes that have arrived, at least one. Empty at the end."""
        self._pacing.begin_wait()
        try:
            if (due := self._due_at()) is not None:
                await self._pacing.pause_until(due)
            while not self._arrived:
                if self._error is not None:
                    raise httpx2.ReadError(str(self._error))
                if self._has_ended:
                    return b""
                await self._arrival(timeout)
            return self._take()
        finally:
            self._pacing.end_wait()

    def close(self) -> None:
        """Close at once. A server that doesn't read, or doesn't end TLS, would keep the connection open."""
        if self._is_lost:
            return
        if not self._has_ended:
            self._has_ended = True
            self._error = ConnectionAbortedError("the connection was closed by this process")
            self._write_done.set()
            self._wake()
        self._open_transport.abort()

    def _due_at(self) -> float | None:
        """When to read, if the process streams many answers: until then more tokens arrive."""
        interval = self._pacing.interval
        is_new = self._read_at - self._asked_at < UNPACED_SECONDS
        if not interval or is_new or len(self._arrived) >= PACED_BYTES or self._has_ended:
            return None
        return self._read_at + interval

    def _take(self) -> bytes:
        data = bytes(self._arrived)
        self._arrived.clear()
        if self._is_paused and not self._has_ended:
            self._is_paused = False
            self._open_transport.resume_reading()
        self._read_at = self._loop.time()
        return data

    async def _arrival(self, timeout: float) -> None:
        self._reader = self._loop.create_future()
        self._patience.wait_for(timeout)
        try:
            in_time = await self._reader
        finally:
            self._reader = None
            self._patience.rest()
        if not in_time:
            raise httpx2.ReadTimeout("nothing came in time")

    @property
    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise RuntimeError("not connected yet")
        return self._transport
