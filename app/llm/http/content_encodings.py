"""Decodes compressed bodies. Our requests ask for none, but some servers and gateways compress all the same."""

import zlib

import httpx2

from app.clock import yield_to_loop
from app.llm.http.responses import HttpResponse

MAX_DECODED_BYTES = 256 * 1024
"""Maximum size of a piece, because a few bytes can decode to a thousand times as many."""
_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})
_ZLIB_OR_GZIP = zlib.MAX_WBITS + 32
_NO_HEADER = -zlib.MAX_WBITS
_ZLIB_METHOD = 8
"""The low half of the first byte of zlib's format."""
_GZIP_START = 0x1F


class Decoder:
    """Decodes the body of one response. Raises `httpx2.DecodingError`."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._encoded = b""
        self._inflate = zlib.decompressobj(_ZLIB_OR_GZIP)
        self._has_begun = self._has_more = False

    def feed(self, encoded: bytes) -> None:
        if not encoded:
            return
        if not self._has_begun:
            self._has_begun = True
            self._begin(encoded[0])
        self._encoded += encoded

    def take(self) -> bytes:
        """The next piece; empty if it needs more bytes."""
        while self._encoded or self._has_more:
            if self._inflate.eof and not self._begin_next_member():
                break
            if contents := self._decode():
                return contents
        return b""

    def _begin(self, first: int) -> None:
        if self._encoding not in _ENCODINGS:
            raise httpx2.DecodingError(f"the body has the unknown encoding {self._encoding!r}")
        # Some servers send "deflate" without the header of zlib.
        if self._encoding == "deflate" and first & 0x0F != _ZLIB_METHOD and first != _GZIP_START:
            self._inflate = zlib.decompressobj(_NO_HEADER)

    def _begin_next_member(self) -> bool:
        """Gzip may have several members after each other. Other bytes after the end are ignored."""
        if self._encoded[0] != _GZIP_START:
            self._encoded = b""
            return False
        self._inflate = zlib.decompressobj(_ZLIB_OR_GZIP)
        return True

    def _decode(self) -> bytes:
        try:
            contents = self._inflate.decompress(self._encoded, MAX_DECODED_BYTES)
        except zlib.error as error:
            raise httpx2.DecodingError(f"the body isn't {self._encoding}: {error}") from None
        at_end = self._inflate.eof
        self._encoded = self._inflate.unused_data if at_end else self._inflate.unconsumed_tail
        self._has_more = not at_end and len(contents) == MAX_DECODED_BYTES
        return contents


class _DecodedResponse(HttpResponse):
    def __init__(self, encoded: HttpResponse, decoder: Decoder) -> None:
        super().__init__(encoded.status, encoded.headers)
        self._encoded = encoded
        self._decoder = decoder

    @property
    def is_complete(self) -> bool:
        return self._encoded.is_complete

    async def read(self) -> bytes:
        # The next piece may be decoded without a wait for more bytes. Other tasks run first.
        await yield_to_loop()
        while not (contents := self._decoder.take()):
            if not (encoded := await self._encoded.read()):
                break
            self._decoder.feed(encoded)
        return contents

    async def aclose(self) -> None:
        await self._encoded.aclose()


def decoded(response: HttpResponse) -> HttpResponse:
    """The same response if its body isn't compressed."""
    encoding = response.headers.get("content-encoding", "").lower()
    if encoding in ("", "identity"):
        return response
    return _DecodedResponse(response, Decoder(encoding))
