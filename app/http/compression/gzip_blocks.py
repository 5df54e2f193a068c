"""Compresses a stream whose pieces many clients get, so that each piece is compressed once for all of them.

Each piece becomes deflate blocks that refer to no earlier bytes. So the same blocks fit into every stream.
"""

import zlib
from functools import lru_cache

_LEVEL = 5
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK = b"\x03\x00"
_KEPT_PIECES = 16
"""Of all streams. A piece is sent to its clients within moments."""


class GzipBlocks:
    """One compressed stream."""

    def __init__(self) -> None:
        self._checksum = zlib.crc32(b"")
        self._size = 0

    def compressed(self, piece: bytes, *, is_last: bool) -> bytes:
        head = b"" if self._size else _HEADER
        self._checksum = zlib.crc32(piece, self._checksum)
        self._size += len(piece)
        blocks = _blocks_of(piece) if piece else b""
        return head + blocks + (self._end() if is_last else b"")

    def _end(self) -> bytes:
        size = self._size % 2**32
        return _LAST_BLOCK + self._checksum.to_bytes(4, "little") + size.to_bytes(4, "little")


@lru_cache(_KEPT_PIECES)
def _blocks_of(piece: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH)
