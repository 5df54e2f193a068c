"""Parses one HTTP/1.1 response: bytes in, head and body out. No I/O.

The parser is the C code that the web server uses for requests.
"""

import httptools

MAX_HEAD_BYTES = 64 * 1024
"""Maximum size of the head with the interim responses before it, and of other bytes without contents."""
_HEAD_TOO_LARGE = "the head of the response is too large"
_NO_CONTENTS = "the response has too many bytes that aren't contents"
_CUT = "the server closed the connection before the end of its response"


class ResponseParser:
    """Feed it the bytes in pieces of any size; head and body are the same.

    An error isn't raised, because the body before it is still useful: `failure` holds it, and the rest of the
    bytes is ignored.
    """

    def __init__(self) -> None:
        self._http = httptools.HttpResponseParser(self)
        # Some servers end lines with LF, fold headers, put blanks after a chunk's size, or send a length with
        # chunks. That is dangerous for servers; a client may accept it (RFC 9112).
        self._http.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
            lenient_chunked_length=True,
        )
        self._head_bytes = 0
        self._bytes_without_contents = 0
        self._body: list[bytes] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        """By lower-case names. Several values of one name are joined."""
        self.has_head = False
        self.is_complete = False
        self.keeps_alive = False
        """Whether the connection can have another request after a complete response."""
        self.failure: str | None = None

    def feed(self, data: bytes) -> None:
        if not self.has_head and self.failure is None:
            data = self._feed_head(data)
        if not data or self.failure is not None:
            return
        self._bytes_without_contents += len(data)
        self._parse(data)
        if self._bytes_without_contents > MAX_HEAD_BYTES and not self.is_complete:
            # Chunk extensions and trailers are ignored, so they must not go on forever.
            self._fail(_NO_CONTENTS)

    def _feed_head(self, data: bytes) -> bytes:
        """Parse up to the most bytes that a head may have, and return the rest."""
        room = MAX_HEAD_BYTES - self._head_bytes
        self._head_bytes += min(len(data), room)
        self._parse(data[:room])
        if not self.has_head and self._head_bytes == MAX_HEAD_BYTES:
            self._fail(_HEAD_TOO_LARGE)
        return data[room:]

    def _parse(self, data: bytes) -> None:
        try:
            self._http.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keeps_alive = False
            if not self.is_complete:
                self._fail(f"the response isn't HTTP: {error}")

    def take_body(self) -> bytes:
        """Return the contents that were parsed since the last call."""
        if not self._body:
            return b""
        contents = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        return contents

    def end(self) -> None:
        """The connection has ended."""
        self.keeps_alive = False
        if self.is_complete:
            return
        if self.has_head and not self._has_length() and self.failure is None:
            self.is_complete = True
        else:
            self._fail(_CUT)

    def _has_length(self) -> bool:
        """Whether the head says where the body ends. Otherwise it ends with the connection."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    def _fail(self, failure: str) -> None:
        self.failure = self.failure or failure

    # --- called by the C code ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.is_complete:  # the server has sent more than its response
            self.keeps_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.has_head:  # a trailer
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        if self.has_head:
            return
        self.status = self._http.get_status_code()
        encoding = self.headers.get("transfer-encoding", "chunked")
        if self.status == 101:
            self._fail("the server changes to a protocol that the request didn't ask for")
        elif self.status < 200:  # an interim response
            self.headers.clear()
        elif encoding.lower() != "chunked":
            self._fail(f"the response has the unknown transfer-encoding {encoding!r}")
        else:
            self.has_head = True

    def on_body(self, body: bytes) -> None:
        # Not the contents of a response whose head was refused, or of a second response.
        if self.has_head and not self.is_complete:
            self._body.append(body)
            self._bytes_without_contents = 0

    def on_message_complete(self) -> None:
        if self.has_head and not self.is_complete:
            self.is_complete = True
            has_one_length = not {"content-length", "transfer-encoding"} <= self.headers.keys()
            self.keeps_alive = has_one_length and self._http.should_keep_alive()
