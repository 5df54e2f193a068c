"""Compression of responses with gzip, for clients that ask for it. Every event of a stream is flushed.

Other responses pass unchanged and without delay. Bodies of requests are never decompressed.
"""

import asyncio
import zlib
from functools import lru_cache

from starlette.middleware.gzip import GZipResponder
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.compression.gzip_blocks import GzipStream, OwnBlocks, shared_blocks
from app.http.headers import qualities
from app.http.sse import is_event_stream

MIN_BYTES = 1_000
"""Smaller bodies fit into one packet anyway."""
THREAD_MIN_BYTES = 128_000
"""Larger pieces are compressed in a thread, so that the event loop isn't blocked."""

_LEVEL = 5
_SMALL_BYTES = 16_000
_SMALL_LEVEL = 3
_SMALL_WINDOW_BITS = 12
_SMALL_MEMORY_LEVEL = 5
"""Most bodies are small. zlib clears 256 KB before it compresses one with its defaults: 2 KB take 140 µs then, and
8 µs with these."""
_GZIP = 16
"""Added to the window's bits, it makes zlib write the format of gzip."""
_SHARED_STREAMS = frozenset({"/v1/changes"})
"""Streams whose pieces all readers of a tenant get."""
_STREAM_HEADERS = ((b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))


class Compression:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_download(scope) and _wants_gzip(scope):
            send = _CompressedResponse(self._app, scope["path"], send).send
        await self._app(scope, receive, send)


class _CompressedResponse:
    """Sends one response: a stream in pieces, and any other one as the framework does."""

    __slots__ = ("_app", "_body", "_path", "_send", "_stream")

    def __init__(self, app: ASGIApp, path: str, send: Send) -> None:
        self._app = app
        self._path = path
        self._send = send
        self._stream: GzipStream | None = None
        self._body: _CompressedBody | None = None

    async def send(self, message: Message) -> None:
        if self._stream is not None:
            message["body"] = await _piece(self._stream, message)
            await self._send(message)
        elif self._body is not None:
            await self._body.send_with_compression(message)
        elif is_event_stream(message["headers"]):
            is_shared = self._path in _SHARED_STREAMS
            self._stream = GzipStream(shared_blocks if is_shared else OwnBlocks())
            message["headers"] = [*message["headers"], *_STREAM_HEADERS]
            await self._send(message)
        else:
            self._body = _CompressedBody(self._app, self._send)
            await self._body.send_with_compression(message)


async def _piece(stream: GzipStream, message: Message) -> bytes:
    body, is_last = message.get("body", b""), not message.get("more_body", False)
    if len(body) >= THREAD_MIN_BYTES:
        return await asyncio.to_thread(stream.compressed, body, is_last=is_last)
    return stream.compressed(body, is_last=is_last)


class _CompressedBody(GZipResponder):
    """A response that isn't a stream. The base class needs the app, and calls it only if it is called itself."""

    def __init__(self, app: ASGIApp, send: Send) -> None:
        super().__init__(
            app, MIN_BYTES, _LEVEL, thread_minimum_size=THREAD_MIN_BYTES, exclude_content_types=()
        )
        self.send = send

    async def apply_compression(self, body: bytes, *, more_body: bool) -> bytes:
        if self._compressor is None and not more_body and len(body) <= _SMALL_BYTES:
            self._compressor = zlib.compressobj(
                _SMALL_LEVEL, zlib.DEFLATED, _GZIP + _SMALL_WINDOW_BITS, _SMALL_MEMORY_LEVEL
            )
        return await super().apply_compression(body, more_body=more_body)


def _is_download(scope: Scope) -> bool:
    """Whether the response has the bytes of a file. Ranges of it must not be compressed."""
    path: str = scope["path"]
    return path.startswith("/v1/files/") and path.endswith("/content")


def _wants_gzip(scope: Scope) -> bool:
    """Whether `Accept-Encoding` allows gzip and doesn't prefer an unchanged body."""
    accepted = [value for name, value in scope["headers"] if name == b"accept-encoding"]
    return bool(accepted) and _prefers_gzip(b",".join(accepted))


@lru_cache(maxsize=64)
def _prefers_gzip(accepted: bytes) -> bool:
    found = qualities(accepted.decode("latin-1"))
    gzip = found.get("gzip", 0.0)
    return gzip > 0 and gzip >= found.get("identity", 0.0)
