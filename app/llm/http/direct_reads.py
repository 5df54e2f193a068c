"""Reads of a connection that the event loop doesn't watch."""

import asyncio
import os

MAX_BYTES = 256 * 1024
"""Most bytes of one read."""


class DirectReads:
    """Reads the socket of a connection when its reader wants to.

    The event loop wakes for each token, although the reader of a paced answer takes several together. That
    costs about as much as parsing the token. A connection with TLS is always watched.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        has_tls = transport.get_extra_info("sslcontext") is not None
        socket = None if has_tls else transport.get_extra_info("socket")
        self._descriptor: int | None = None if socket is None else socket.fileno()
        self._is_watched = True

    def begin(self) -> None:
        """From now on the event loop doesn't watch the connection, if it can be read directly."""
        if self._is_watched and self._is_open:
            self._is_watched = False
            self._transport.pause_reading()

    def read(self) -> bytes:
        """What has arrived. If that is nothing, the event loop watches the connection again: for more, or for
        its end."""
        if self._is_watched or not self._is_open:
            return b""
        assert self._descriptor is not None
        try:
            arrived = os.read(self._descriptor, MAX_BYTES)
        except OSError:
            arrived = b""
        if not arrived:
            self.end()
        return arrived

    def end(self) -> None:
        if not self._is_watched and self._is_open:
            self._is_watched = True
            self._transport.resume_reading()

    @property
    def _is_open(self) -> bool:
        # The descriptor of a closed connection may be that of another one.
        return self._descriptor is not None and not self._transport.is_closing()
