"""Decodes compressed bodies. Our requests ask for none, but some servers and gateways compress all the same."""

import zlib
from collections.abc import Mapping

import httpx2

MAX_DECODED_BYTES = 1024 * 1024
"""Maximum size of a piece, because a few bytes can decode to a thousand times as many."""
_ZLIB_OR_GZIP = 47


class Decoder:
    """Decodes the body of one response."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_ZLIB_OR_GZIP)
        self._encoded = b""

    def feed(self, encoded: bytes) -> None:
        self._encoded += encoded

    def take(self) -> bytes:
        """The next piece; empty if it needs more bytes."""
        if not self._encoded:
            return b""
        try:
            contents = self._inflate.decompress(self._encoded, MAX_DECODED_BYTES)
        except zlib.error as error:
            raise httpx2.DecodingError(str(error)) from None
        self._encoded = self._inflate.unconsumed_tail
        return contents


def decoder_of(headers: Mapping[str, str]) -> Decoder | None:
    """None if the body isn't compressed."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return Decoder()
    raise httpx2.DecodingError(f"the body has the unknown encoding {encoding!r}")
