"""Joined reads: of a stream of small pieces, what one read of the network brought arrives as one.

A model server sends each token as an HTTP chunk of its own, and the HTTP stack spends longer on a chunk
than we do on the token in it, and hides which chunks came together. So the chunks of one read are framed
as a single one before the HTTP stack sees them. Everything else about the connection stays as it was.
"""

import re

CHUNK_LIMIT = 256 * 1024
"""A chunk larger than this isn't waited for: it passes through in the pieces that it came in."""

HEAD_LIMIT = 64 * 1024

_IS_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked", re.IGNORECASE)


class JoinedChunks:
    """The bytes of a connection's responses, with neighbouring HTTP chunks made one.

    Bytes that don't look as expected pass through untouched, from there to the end of the response:
    complaining about them is left to the HTTP stack.
    """

    def __init__(self) -> None:
        self._head: bytes | None = b""
        self._chunked = False
        self._held = b""

    def begin(self) -> None:
        """A request goes out: the next bytes are a head."""
        self._head, self._chunked, self._held = b"", False, b""

    def feed(self, data: bytes) -> bytes:
        """What to hand on now; nothing when all of it is the beginning of a chunk."""
        passed = b""
        while self._head is not None and data:
            known = len(self._head)
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > HEAD_LIMIT:
                    self._head = None
                return passed + data
            end += 4
            passed, data = passed + data[: end - known], data[end - known :]
            interim = self._head.startswith(b"HTTP/1.1 1")
            self._chunked = _IS_CHUNKED.search(self._head, 0, end) is not None
            self._head = b"" if interim else None
        return passed + (self._join(data) if self._chunked else data)

    def rest(self) -> bytes:
        """The connection is at its end: hand on what was held."""
        held, self._held, self._chunked = self._held, b"", False
        return held

    def _join(self, data: bytes) -> bytes:
        data = self._held + data
        pieces: list[bytes] = []
        at = 0
        while (line := data.find(b"\r\n", at)) >= 0:
            size = _size(data[at:line])
            end = line + 2 + size
            if size <= 0 or data[end : end + 2] not in (b"\r\n", b"\r", b""):
                self._chunked = False  # the last chunk, or none at all
                break
            if end + 2 > len(data):
                break
            pieces.append(data[line + 2 : end])
            at = end + 2
        if len(data) - at > CHUNK_LIMIT:
            self._chunked = False
        rest = data[at:]
        self._held = rest if self._chunked else b""
        joined = b"".join(pieces)
        framed = b"%x\r\n%b\r\n" % (len(joined), joined) if joined else b""
        return framed if self._chunked else framed + rest


def _size(line: bytes) -> int:
    """What a chunk's first line announces; 0 also for what isn't such a line."""
    try:
        return int(line, 16)
    except ValueError:
        return 0
