"""Streams that cost their client little: hundreds of them share two cores with what is measured."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from bench.clients import Unexpected

WORD = b"word "
_END = b"\r\n0\r\n\r\n"
"""The end of a response whose length isn't known at its beginning."""


class PlainStream(asyncio.Protocol):
    """One request on a connection of its own. `received` gets the number of words in each read."""

    def __init__(self, request: bytes, received: Callable[[int], None]) -> None:
        self._request = request
        self._received = received
        self._tail = b""
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        """Done when the first bytes of a 200 have arrived."""
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop aren't subclasses of it.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            if not data.startswith(b"HTTP/1.1 200"):
                self._fail(f"answered {data[:200]!r}")
                return
            self.opened.set_result(None)
        joined = self._tail + data
        self._tail = joined[-len(WORD) + 1 :]
        if words := joined.count(WORD):
            self._received(words)
        if joined.endswith(_END) or data.endswith(_END):
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"cut off: {error!r}")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        self.close()

    def _fail(self, what: str) -> None:
        for waiting in (self.opened, self.ended):
            if not waiting.done():
                waiting.set_exception(Unexpected(f"a stream was {what}"))
                # Its reader may wait for the other one.
                waiting.exception()


async def open_stream(
    base: str,
    target: str,
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    received: Callable[[int], None] = lambda _: None,
) -> PlainStream:
    """Send a request: a POST if it has a body, else a GET."""
    address = urlsplit(base)
    content = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{'GET' if body is None else 'POST'} {target} HTTP/1.1",
        f"host: {address.netloc}",
        "accept: text/event-stream",
        f"content-length: {len(content)}",
        *(["content-type: application/json"] if content else []),
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    request = "\r\n".join(lines).encode() + b"\r\n\r\n" + content
    _, stream = await asyncio.get_running_loop().create_connection(
        lambda: PlainStream(request, received), address.hostname or "", address.port or 80
    )
    return stream
