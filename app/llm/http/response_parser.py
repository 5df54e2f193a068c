"""Parses one HTTP/1.1 response: bytes in, head and body out. No I/O.

The parser is the C code that the web server uses for requests.
"""

import httptools

MAX_HEAD_BYTES = 64 * 1024
_HEAD_TOO_LARGE = "the head of the response is too large"
_CUT = "the server closed the connection before the end of its response"


class ResponseParser:
    """Feed it the bytes in pieces of any size.

    An error isn't raised, because the body before it is still useful: `failure` holds it, and the rest of the
    bytes is ignored.
    """

    def __init__(self) -> None:
        self._http = httptools.HttpResponseParser(self)
        self._head_bytes = 0
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
        if self.failure is not None:
            return
        if not self.has_head:
            self._head_bytes += len(data)
        try:
            self._http.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keeps_alive = False
            if not self.is_complete:
                self.failure = f"the response isn't HTTP: {error}"
        if not self.has_head and self._head_bytes > MAX_HEAD_BYTES:
            self.failure = self.failure or _HEAD_TOO_LARGE

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
        if self.is_complete or self.failure is not None:
            return
        if self.has_head and not self._has_length():
            self.is_complete = True
        else:
            self.failure = _CUT

    def _has_length(self) -> bool:
        """Whether the head says where the body ends. Otherwise it ends with the connection."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    # --- called by the C code ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.is_complete:  # the server has sent more than its response
            self.keeps_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.has_head:  # a trailer
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        if self.has_head:
            return
        self.status = self._http.get_status_code()
        if self.status < 200:  # an interim response
            self.headers.clear()
        else:
            self.has_head = True

    def on_body(self, body: bytes) -> None:
        if not self.is_complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self.has_head and not self.is_complete:
            self.is_complete = True
            self.keeps_alive = self._http.should_keep_alive()
