"""Takes the HTTP chunks that arrive in one read of the socket together.

A model server sends each token as an HTTP chunk. The HTTP stack spends more time on a chunk than we do on its
token, and hides which chunks arrived together. So a reader may take the contents of the chunks without the
stack, which then sees only the head and the end of the response. For other readers the chunks of one read become
one chunk before the stack sees them. Everything else of the connection is unchanged.
"""

import re

MAX_CHUNK_BYTES = 256 * 1024
"""A larger chunk isn't buffered. Its pieces are passed on as they arrive."""

MAX_HEAD_BYTES = 64 * 1024

_IS_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked", re.IGNORECASE)


class ChunkCoalescer:
    """Joins neighbouring HTTP chunks in the responses of a connection.

    After unexpected bytes the rest of the response passes unchanged. The HTTP stack reports the error.
    """

    def __init__(self) -> None:
        self._head: bytes | None = b""
        self._chunked = False
        self._buffered = b""

    def begin(self) -> None:
        """Call when a request is sent: the next bytes are a response head."""
        self._head, self._chunked, self._buffered = b"", False, b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to pass on now; empty if `data` is only the beginning of a chunk."""
        forwarded = b""
        while self._head is not None and data:
            known = len(self._head)
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > MAX_HEAD_BYTES:
                    self._head = None
                return forwarded + data
            end += 4
            forwarded, data = forwarded + data[: end - known], data[end - known :]
            interim = self._head.startswith(b"HTTP/1.1 1")
            self._chunked = _IS_CHUNKED.search(self._head, 0, end) is not None
            self._head = b"" if interim else None
        return forwarded + (self._join(data) if self._chunked else data)

    def length_in_head(self, data: bytes) -> int:
        """How many of the next bytes belong to a head. It is read alone, so that the chunks after it can be taken."""
        if self._head is None:
            return len(data)
        end = (self._head + data).find(b"\r\n\r\n")
        return len(data) if end < 0 else end + 4 - len(self._head)

    @property
    def can_take(self) -> bool:
        """Whether the next bytes are chunks whose contents can be taken without the HTTP stack."""
        return self._head is None and self._chunked

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """The contents of the complete chunks, and the bytes that the HTTP stack has to read instead.

        Those are the end of the response, or anything that isn't a chunk. Then nothing can be taken any more.
        """
        contents, rest = self._split(data)
        return contents, b"" if self._chunked else rest

    def flush(self) -> bytes:
        """Return the buffered bytes. Call when the connection has ended."""
        buffered, self._buffered, self._chunked = self._buffered, b"", False
        return buffered

    def _join(self, data: bytes) -> bytes:
        joined, rest = self._split(data)
        framed = b"%x\r\n%b\r\n" % (len(joined), joined) if joined else b""
        return framed if self._chunked else framed + rest

    def _split(self, data: bytes) -> tuple[bytes, bytes]:
        """The contents of the complete chunks, and what comes after them. It is kept if it is a chunk's beginning."""
        data = self._buffered + data
        pieces: list[bytes] = []
        at = 0
        while (line := data.find(b"\r\n", at)) >= 0:
            size = _size(data[at:line])
            end = line + 2 + size
            if size <= 0 or data[end : end + 2] not in (b"\r\n", b"\r", b""):
                self._chunked = False
                break
            if end + 2 > len(data):
                break
            pieces.append(data[line + 2 : end])
            at = end + 2
        if len(data) - at > MAX_CHUNK_BYTES:
            self._chunked = False
        rest = data[at:]
        self._buffered = rest if self._chunked else b""
        return b"".join(pieces), rest


def _size(line: bytes) -> int:
    """The size in a chunk's first line; 0 if the line isn't a chunk's first line."""
    try:
        return int(line, 16)
    except ValueError:
        return 0
