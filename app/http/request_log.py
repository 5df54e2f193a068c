"""One log line and one measurement per request.

An event stream is measured until its response begins, and logged when it ends. Health checks are neither
measured nor logged. Addresses are logged as route templates with the ids of run and thread, never with
their query.
"""

import re
from dataclasses import dataclass
from time import perf_counter

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import telemetry
from app.clock import new_id
from app.domain.ids import canonical_uuid
from app.http.sse import is_event_stream

REQUEST_ID_HEADER = b"x-request-id"

_NOT_LOGGED = frozenset({"/health", "/health/live", "/metrics"})
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_REQUEST_ID = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,198}[\x21-\x7e])?")
_NO_ROUTE = "none"
_RECORD = "request_record"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RequestRecord:
    """What is known about a request that is being answered.

    The scope leads to it, so it doesn't refer to the scope: a cycle would keep the request's objects until the
    next garbage collection.
    """

    received_at: float
    request_id: str
    """The client's own, or a new one."""
    status: int | None = None
    """The status of the response, once it has begun."""
    code: str | None = None
    """The code of the error response."""
    is_stream: bool = False

    @property
    def seconds(self) -> float:
        return perf_counter() - self.received_at


def record_of(scope: Scope) -> RequestRecord | None:
    """The record of this request. A request that isn't logged has none."""
    record: RequestRecord | None = scope.get("state", {}).get(_RECORD)
    return record


def given_request_id(scope: Scope) -> str | None:
    """The client's X-Request-Id. One that isn't 1 to 200 printable ASCII characters is ignored, because a
    proxy may have set it."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER:
            given = value.decode("latin-1").strip()
            return given if _REQUEST_ID.fullmatch(given) else None
    return None


class RequestLog:
    """Measures and logs each request. It is the outermost middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _NOT_LOGGED:
            await self._app(scope, receive, send)
            return
        record = RequestRecord(perf_counter(), given_request_id(scope) or new_id())
        scope.setdefault("state", {})[_RECORD] = record

        async def send_and_record(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = _begin_response(record, scope, message)
            await send(message)

        telemetry.http_requests_open.inc()
        try:
            await self._app(scope, receive, send_and_record)
        finally:
            _finish(record, scope)


def _begin_response(record: RequestRecord, scope: Scope, message: Message) -> Message:
    """Note how the response begins. Returns the message with the request's id."""
    headers = [*message.get("headers", ()), (REQUEST_ID_HEADER, record.request_id.encode())]
    record.status = message["status"]
    record.is_stream = is_event_stream(headers)
    if record.is_stream:
        telemetry.http_requests_open.dec()
        telemetry.http_stream_start_seconds.labels(_route(scope)).observe(record.seconds)
    return {**message, "headers": headers}


def _finish(record: RequestRecord, scope: Scope) -> None:
    # The framework answers 500 after an exception, outside of this middleware.
    status, method, route, seconds = (
        record.status or 500,
        _method(scope),
        _route(scope),
        record.seconds,
    )
    if not record.is_stream:
        telemetry.http_requests_open.dec()
        status_class = f"{status // 100}xx"
        telemetry.http_request_seconds.labels(method, route, status_class).observe(seconds)
    log.info(
        "http_request",
        method=method,
        route=route,
        status=status,
        seconds=round(seconds, 4),
        request_id=record.request_id,
        **_optional_fields(record, scope),
    )


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else "other"


def _route(scope: Scope) -> str:
    """The template of the address, so that it has few values."""
    path: str = getattr(scope.get("route"), "path", _NO_ROUTE)
    return path


def _optional_fields(record: RequestRecord, scope: Scope) -> dict[str, str]:
    """The error's code, the principal, and the ids in the address."""
    fields: dict[str, str] = {}
    if record.code is not None:
        fields["code"] = record.code
    principal = scope["state"].get("principal")
    if principal is not None:
        fields |= {"tenant": principal.tenant, "subject": principal.subject}
    for name in ("run_id", "thread_id"):
        given = scope.get("path_params", {}).get(name)
        if given is not None and (known := canonical_uuid(given)) is not None:
            fields[name] = known
    return fields
