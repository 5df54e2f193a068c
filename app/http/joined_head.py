"""Writes the head of a response together with the beginning of its body."""

import asyncio


class JoinedHead:
    """The transport of one response, as the web server sees it.

    The web server writes the head and the body one after the other. Each write is a system call, and a packet
    for the client to receive. A head without a body is written in the loop's next iteration.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._has_begun = False
        self._head = b""
        self._waiting: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._head = data
            self._waiting = self._loop.call_soon(self._write_head)
        elif self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
            self._transport.write(self._head + data)
        else:
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._write_head()
        self._transport.close()

    def _write_head(self) -> None:
        self._waiting = None
        self._transport.write(self._head)
