"""Compression of responses with gzip, for clients that ask for it. Every event of a stream is flushed.

Other responses pass unchanged and without delay. Bodies of requests are never decompressed.
"""

import zlib

from starlette.middleware.gzip import GZipResponder
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.compression.gzip_blocks import GzipBlocks
from app.http.headers import qualities
from app.http.sse import is_event_stream

MIN_BYTES = 1_000
"""Smaller bodies fit into one packet anyway."""
THREAD_MIN_BYTES = 128_000
"""Larger pieces are compressed in a thread, so that the event loop isn't blocked."""

_LEVEL = 5
_STREAM_LEVEL = 1
_STREAM_WINDOW_BITS = 10
_STREAM_MEMORY_LEVEL = 3
"""A compressed stream needs 14 KB, instead of 256 KB with the defaults of zlib.

A delta of 70 bytes becomes 15 bytes and costs 1.4 µs of CPU. The defaults would make it 13 bytes.
"""
_SHARED_STREAMS = frozenset({"/v1/changes"})
"""Streams whose pieces all readers of a tenant get."""
_GZIP = 16
"""Added to the window's bits, it makes zlib write the format of gzip."""


class Compression:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_download(scope) and _wants_gzip(scope):
            await _Compressor(self._app, scope["path"])(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _Compressor(GZipResponder):
    """Compresses one response."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        super().__init__(
            app, MIN_BYTES, _LEVEL, thread_minimum_size=THREAD_MIN_BYTES, exclude_content_types=()
        )
        self._path = path
        self._blocks: GzipBlocks | None = None

    async def send_with_compression(self, message: Message) -> None:
        if message["type"] == "http.response.start" and is_event_stream(message["headers"]):
            if self._path in _SHARED_STREAMS:
                self._blocks = GzipBlocks()
            else:
                self._compressor = zlib.compressobj(
                    _STREAM_LEVEL, zlib.DEFLATED, _GZIP + _STREAM_WINDOW_BITS, _STREAM_MEMORY_LEVEL
                )
        await super().send_with_compression(message)

    async def apply_compression(self, body: bytes, *, more_body: bool) -> bytes:
        if self._blocks is not None:
            return self._blocks.compressed(body, is_last=not more_body)
        return await super().apply_compression(body, more_body=more_body)


def _is_download(scope: Scope) -> bool:
    """Whether the response has the bytes of a file. Ranges of it must not be compressed."""
    path: str = scope["path"]
    return path.startswith("/v1/files/") and path.endswith("/content")


def _wants_gzip(scope: Scope) -> bool:
    """Whether `Accept-Encoding` allows gzip and doesn't prefer an unchanged body."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding")
    if b"gzip" not in accepted.lower():
        return False
    found = qualities(accepted.decode("latin-1"))
    gzip = found.get("gzip", 0.0)
    return gzip > 0 and gzip >= found.get("identity", 0.0)
