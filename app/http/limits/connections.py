"""Limits of connections: how long a request may take to arrive, and a response to be read.

uvicorn has no such limits. A request, or its headers, may never end. An unread response stays in memory
until the client disconnects. `body_size` limits bodies.
"""

import asyncio
from typing import Any, ClassVar

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.clock import new_id
from app.domain.json_values import compact
from app.http.errors import TITLES, problem_document
from app.http.joined_head import JoinedHead

MAX_HEAD_BYTES = 65_536
_MAX_DISCARDED_BYTES = 8
"""Factor over the maximum body: how much is read of a body that was refused. Chunks have headers, too."""

_MIN_BODY_BYTES_PER_SECOND = 10_000
"""A body that arrives at least this fast may take longer than the time-out, such as a large upload."""

NAMES_HOST_IN_TARGET = "names_host_in_target"
"""Key in a request's state: its first line has an absolute URL instead of a path."""

_LINGER_SECONDS = 2.0

log = structlog.get_logger(__name__)


class _Refused(Exception):
    """Raised through the parser to stop it."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Subclasses set its time-out and its maximum body size."""

    timeout_seconds: ClassVar[float]
    max_body_bytes: ClassVar[int]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arrival_timer: asyncio.TimerHandle | None = None
        self._reading_timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._in_head = True
        self._has_request = False
        self._head_bytes = 0
        self._received = 0
        self._received_before_timer = 0
        self._unanswered: list[RequestResponseCycle] = []

    # --- connections ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        self._stop_watching_reading()
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
        if self._arrival_timer is None:
            self._expect_request()
        self._received += len(data)
        super().data_received(data)
        self._bound()

    def _bound(self) -> None:
        if self._is_over:
            return
        if self._in_head and self._received > MAX_HEAD_BYTES:
            self._refuse_headers()
        elif self._received > _MAX_DISCARDED_BYTES * self.max_body_bytes + MAX_HEAD_BYTES:
            # The request was refused before, but the client still sends.
            self._linger()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes, self._received = True, 0, 0
        self._received_before_timer = 0
        if self._arrival_timer is None:
            self._expect_request()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        # uvicorn keeps only the path of the target.
        self.scope["state"][NAMES_HOST_IN_TARGET] = not self.url.startswith(b"/")
        super().on_headers_complete()
        self._has_request = True
        still = [cycle for cycle in self._unanswered if not cycle.response_complete]
        self._unanswered = [*still, self.cycle]
        if self.scope["method"] != "HEAD":  # its response has no body to wait for
            self.cycle.transport = JoinedHead(self.cycle, self.loop)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        self._stop_expecting()
        super().on_message_complete()

    def _count(self, size: int) -> None:
        """Count bytes of headers and of trailers."""
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _Refused

    def _expect_request(self) -> None:
        self._received_before_timer = self._received
        self._arrival_timer = self.loop.call_later(self.timeout_seconds, self._arrival_timed_out)

    def _stop_expecting(self) -> None:
        if self._arrival_timer is not None:
            self._arrival_timer.cancel()
            self._arrival_timer = None

    def _arrival_timed_out(self) -> None:
        self._arrival_timer = None
        if self.flow.read_paused or self._body_is_fast_enough():
            # If the server has paused reading, the client isn't late.
            self._expect_request()
        elif self._received == 0 or self._is_answering():
            self._abort("the request didn't arrive in time")
        else:
            self._refuse(
                408,
                "request_timeout",
                f"The request didn't arrive completely within {self.timeout_seconds:g} seconds. Send it again.",
            )

    def _body_is_fast_enough(self) -> bool:
        """Whether enough of the body arrived since the timer was set."""
        arrived = self._received - self._received_before_timer
        is_fast = arrived >= _MIN_BODY_BYTES_PER_SECOND * self.timeout_seconds
        return is_fast and not self._in_head and not self._is_answering()

    # --- refusals -------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn when the parser fails."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_headers()
        else:
            self._refuse(400, "malformed_request", "The request isn't valid HTTP.")

    def _refuse_headers(self) -> None:
        self._refuse(
            431,
            "headers_too_large",
            f"The address and the headers have more than {MAX_HEAD_BYTES} bytes together. Send less.",
        )

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Send an error response on the connection, because there is no request yet."""
        if self._is_answering():
            self._abort(detail)
            return
        trace_id = new_id()
        log.info("malformed_request_refused", status=status, code=code, request_id=trace_id)
        body = compact(problem_document(status, code, detail, "", trace_id)).encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%b" % (status, TITLES[status].encode(), len(body), body)
        )
        self._linger()

    def _linger(self) -> None:
        """Discard the rest of the request for a while. Closing at once could drop our response."""
        self._is_over = True
        self._stop_expecting()
        if self._has_request:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write_eof()
        self._arrival_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def _is_answering(self) -> bool:
        """Whether a response has begun, so that another one would corrupt it."""
        if self.pipeline:
            return True
        is_begun = self._has_request and self.cycle.response_started
        return is_begun and not self.cycle.response_complete

    def _abort(self, reason: str) -> None:
        if not self.transport.is_closing() or self.transport.get_write_buffer_size() > 0:
            log.info("connection_cut", reason=reason)
        self._is_over = True
        self.transport.abort()

    # --- answers --------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_watching_reading()
        super().resume_writing()

    def _stop_watching_reading(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None

    def _watch_reading(self, left: int) -> None:
        def check() -> None:
            now_left = self.transport.get_write_buffer_size()
            if now_left >= left:
                self._abort("the client reads nothing")
            else:
                self._watch_reading(now_left)

        self._reading_timer = self.loop.call_later(self.timeout_seconds, check)


def bounded_protocol(timeout_seconds: float, max_body_bytes: int) -> type[BoundedProtocol]:
    """The protocol class for uvicorn, with these limits."""
    limits = {"timeout_seconds": timeout_seconds, "max_body_bytes": max_body_bytes}
    return type("Connection", (BoundedProtocol,), limits)
