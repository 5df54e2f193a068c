"""HTTP on the wire: connections are given up when their requests don't come, or their answers aren't taken.

The server library has no bounds of its own here: a request may take for ever to arrive, its head may be
endless, and an answer that nobody takes is kept for as long as the other side is there. Bodies are bounded
one layer up, once there is a request.
"""

import asyncio
from typing import Any, ClassVar

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.clock import new_id
from app.domain.json_values import compact

MAX_HEAD_BYTES = 65_536
_MAX_DISCARDED_BYTES = 8
"""How much longer than its body a request may be: pieces have heads of their own."""

NAMES_HOST_IN_TARGET = "names_host_in_target"
"""In a request's state: its first line has a whole URL where others have a path."""

_LINGER = 2.0
"""Seconds."""

log = structlog.get_logger(__name__)


class _Refused(Exception):
    """Thrown through the parser, which reads no further."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Subclasses say how patient it is, and how long bodies may be."""

    patience: ClassVar[float]
    most_body_bytes: ClassVar[int]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arrival: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self._is_over = False
        self._in_head = True
        self._has_asked = False
        self._head_bytes = 0
        self._received = 0
        self._unanswered: list[RequestResponseCycle] = []

    # --- connections ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_a_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_arrived()
        self._is_taken()
        # The library marks the latest request alone: a stream before it would write on and raise.
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._unanswered.clear()
        super().connection_lost(exc)

    # --- requests -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if self._arrival is None:
            self._expect_a_request()
        self._received += len(data)
        super().data_received(data)
        self._bound()

    def _bound(self) -> None:
        if self._is_over:
            return
        if self._in_head and self._received > MAX_HEAD_BYTES:
            self._refuse_the_head()
        elif self._received > _MAX_DISCARDED_BYTES * self.most_body_bytes + MAX_HEAD_BYTES:
            # It was refused long ago, if anybody reads it.
            self._linger()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes, self._received = True, 0, 0
        if self._arrival is None:
            self._expect_a_request()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        # The library takes the path out of the target and drops the rest.
        self.scope["state"][NAMES_HOST_IN_TARGET] = not self.url.startswith(b"/")
        super().on_headers_complete()
        self._has_asked = True
        still = [cycle for cycle in self._unanswered if not cycle.response_complete]
        self._unanswered = [*still, self.cycle]

    def on_message_complete(self) -> None:
        self._has_arrived()
        super().on_message_complete()

    def _count(self, size: int) -> None:
        """Heads count, and so do the fields behind a body."""
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _Refused

    def _expect_a_request(self) -> None:
        self._arrival = self.loop.call_later(self.patience, self._too_late)

    def _has_arrived(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _too_late(self) -> None:
        self._arrival = None
        if self.flow.read_paused:
            # It is us who don't read on.
            self._expect_a_request()
        elif self._received == 0 or self._is_answering():
            self._give_up("its request doesn't come")
        else:
            self._refuse(
                408,
                "request_timeout",
                f"The request hasn't come whole within {self.patience:g} seconds. Send it again.",
            )

    # --- refusals -------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """What the library says when the parser gives up."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_the_head()
        else:
            self._refuse(400, "malformed_request", "This isn't HTTP.")

    def _refuse_the_head(self) -> None:
        self._refuse(
            431,
            "headers_too_large",
            f"The address and the headers are larger than {MAX_HEAD_BYTES} bytes together.",
        )

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Before there is a request there is no address, and nobody to answer but the connection."""
        if self._is_answering():
            self._give_up(detail)
            return
        trace_id = new_id()
        log.info("refused", status=status, code=code, trace_id=trace_id)
        body = compact(
            {
                "type": f"https://holdfast.invalid/problems/{code}",
                "title": _REASONS[status],
                "status": status,
                "detail": detail,
                "instance": "",
                "code": code,
                "trace_id": trace_id,
                "retryable": status == 408,
                "error": detail,
            }
        ).encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%b" % (status, _REASONS[status].encode(), len(body), body)
        )
        self._linger()

    def _linger(self) -> None:
        """Hear the rest out and forget it: an end in the middle of it would take our answer along."""
        self._is_over = True
        self._has_arrived()
        if self._has_asked:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write_eof()
        self._arrival = self.loop.call_later(_LINGER, self.transport.abort)

    def _is_answering(self) -> bool:
        """Whether bytes of ours would get into an answer that is on its way."""
        if self.pipeline:
            return True
        is_begun = self._has_asked and self.cycle.response_started
        return is_begun and not self.cycle.response_complete

    def _give_up(self, reason: str) -> None:
        if not self.transport.is_closing() or self.transport.get_write_buffer_size() > 0:
            log.info("connection_cut", reason=reason)
        self._is_over = True
        self.transport.abort()

    # --- answers --------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_the_taking(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_taken()
        super().resume_writing()

    def _is_taken(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _watch_the_taking(self, left: int) -> None:
        def look() -> None:
            now_left = self.transport.get_write_buffer_size()
            if now_left >= left:
                self._give_up("the client takes nothing")
            else:
                self._watch_the_taking(now_left)

        self._taking = self.loop.call_later(self.patience, look)


_REASONS = {
    400: "Bad request",
    408: "Request timeout",
    431: "Request header fields too large",
}


def bounded_protocol(patience: float, most_body_bytes: int) -> type[BoundedProtocol]:
    """The kind of connection that a server is to have."""
    limits = {"patience": patience, "most_body_bytes": most_body_bytes}
    return type("Connection", (BoundedProtocol,), limits)
