"""Writes the head of a response together with the beginning of its body."""

import asyncio
from typing import Protocol


class Response(Protocol):
    """A response of the web server, with the transport that it writes to."""

    transport: asyncio.Transport


class JoinedHead:
    """The transport of a response until the beginning of its body is written.

    The web server writes the head and the body one after the other. Each write is a system call, and a packet
    for the client to receive. A head without a body is written in the loop's next iteration.
    """

    def __init__(self, response: Response, loop: asyncio.AbstractEventLoop) -> None:
        self._response = response
        self._transport = response.transport
        self._loop = loop
        self._head: bytes | None = None
        self._waiting: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        if self._head is None:
            self._head = data
            self._waiting = self._loop.call_soon(self._write_head)
        else:
            self._write_head(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if self._head is not None:
            self._write_head()
        self._transport.close()

    def _write_head(self, body: bytes = b"") -> None:
        """Write all that has come, and let the response write to the transport itself from now on."""
        assert self._head is not None
        if self._waiting is not None:
            self._waiting.cancel()
        self._response.transport = self._transport
        self._transport.write(self._head + body)
