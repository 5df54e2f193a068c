"""Error responses as problem+json. Maps the domain's errors to HTTP statuses."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.clock import new_id
from app.domain import errors
from app.domain.errors import UnavailableReason
from app.domain.json_values import compact, storable
from app.domain.spelling import closest_name
from app.domain.timestamps import format_timestamp
from app.http.error_help.body_fields import known_fields
from app.http.error_help.pages import type_of
from app.http.request_log import record_of
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.postgres.errors import reason_of

PROBLEM = "application/problem+json"

STATUS: Mapping[type[errors.Refusal], int] = {
    errors.Invalid: 422,
    errors.Unreadable: 400,
    errors.BadCursor: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Gone: 410,
    errors.DigestMismatch: 412,
    errors.TooLarge: 413,
    errors.UnsupportedMedia: 415,
    errors.TooMany: 429,
    errors.Unavailable: 503,
}
_RETRYABLE = frozenset({408, 429, 503})
_RETRY_AFTER = {429: "5", 503: "1"}
TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid request",
    429: "Too many requests",
    431: "Request header fields too large",
    500: "Internal error",
    503: "Unavailable",
}
_FRAMEWORK_ERRORS = {
    400: ("malformed_body", "The body isn't valid JSON in UTF-8."),
    404: ("not_found", "This address doesn't exist. GET /openapi.json lists all operations."),
    405: (
        "method_not_allowed",
        "This address doesn't support this method. The Allow header lists those that it does.",
    ),
}
_MAX_ERRORS = 20
_MAX_SUGGESTIONS = 5
"""Each takes about as long as validating a small request."""
_MAX_INSTANCE_LENGTH = 500
_BUSY = frozenset({UnavailableReason.BUSY, UnavailableReason.TOO_MANY_CONNECTIONS})
_LASTING = frozenset(
    {UnavailableReason.READ_ONLY, UnavailableReason.DISK_FULL, UnavailableReason.OUT_OF_RESOURCES}
)
_NO_RESPONSE = "The database doesn't answer. Try again in a moment."
_UNAVAILABLE = {
    UnavailableReason.READ_ONLY: "The database is read-only at the moment. Try again in a moment.",
    UnavailableReason.DISK_FULL: "The database's disk is full. Try again later.",
    UnavailableReason.OUT_OF_RESOURCES: "The database is out of resources, such as memory. Try again later.",
    UnavailableReason.LOCKED: "Another request is changing the same rows. Try again in a moment.",
    UnavailableReason.TOO_SLOW: "The database took too long. Try again in a moment.",
}

log = structlog.get_logger(__name__)


def problem(
    request: Request,
    status: int,
    code: str,
    detail: str,
    facts: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error response."""
    record = record_of(request.scope)
    if record is not None:
        record.code = code
    body = _document(request, status, code, detail, facts or {})
    more = {"Retry-After": _RETRY_AFTER[status]} if status in _RETRY_AFTER else {}
    return Response(
        compact(storable(body)),
        status_code=status,
        media_type=PROBLEM,
        headers={**more, **(headers or {})},
    )


def _document(
    request: Request, status: int, code: str, detail: str, facts: Mapping[str, Any]
) -> dict[str, Any]:
    record = record_of(request.scope)
    trace_id = new_id() if record is None else record.request_id
    instance = quote(request.url.path[:_MAX_INSTANCE_LENGTH], safe="/:")
    return {
        **problem_document(status, code, detail, instance, trace_id),
        **{key: _plain(value) for key, value in facts.items()},
    }


def document_of(request: Request, error: Exception) -> dict[str, Any]:
    """The error of one part of a request whose other parts may succeed."""
    if isinstance(error, errors.Refusal):
        return _document(request, _status_of(error), error.code, error.detail, error.facts)
    reason = reason_of(error)
    return _document(request, 503, *_unavailable(reason), {"reason": reason.value})


def problem_document(
    status: int, code: str, detail: str, instance: str, trace_id: str
) -> dict[str, Any]:
    """The members that every error has."""
    return {
        "type": type_of(code),
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
        "trace_id": trace_id,
        "retryable": status in _RETRYABLE,
    }


def install(app: FastAPI) -> None:
    """Register a handler for each kind of exception."""
    app.add_exception_handler(errors.Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _framework_error)
    for kind in DATABASE_UNAVAILABLE:
        app.add_exception_handler(kind, _database_unavailable)
    app.add_exception_handler(Exception, _internal_error)


def refusal(request: Request, error: errors.Refusal) -> Response:
    """The error response for a refusal."""
    status = _status_of(error)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return problem(request, status, error.code, error.detail, error.facts, headers)


def _status_of(error: errors.Refusal) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.Refusal)
    return refusal(request, error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        code, detail = _FRAMEWORK_ERRORS[400]
        return problem(request, 400, code, detail)
    if any(one["type"] == "missing" and tuple(one["loc"]) == ("body",) for one in found):
        return problem(
            request,
            422,
            "invalid_request",
            "This request needs a JSON body. Send it with Content-Type: application/json.",
        )
    places = [
        {
            "at": ".".join(str(part)[:100] for part in one["loc"]),
            "problem": _sentence(request, one, may_suggest=index < _MAX_SUGGESTIONS)[:300],
        }
        for index, one in enumerate(found[:_MAX_ERRORS])
    ]
    detail = "; ".join(f"{place['at']}: {place['problem']}" for place in places[:3])
    is_schema = all(one["type"] == "schema_unsupported" for one in found)
    code = "schema_unsupported" if is_schema else "invalid_request"
    return problem(request, 422, code, detail, {"errors": places})


def _sentence(request: Request, error: Mapping[str, Any], *, may_suggest: bool) -> str:
    if error["type"] == "extra_forbidden":
        place = tuple(error["loc"])
        meant = closest_name(str(place[-1]), known_fields(request, place)) if may_suggest else None
        remedy = "check its spelling, or remove it" if meant is None else f"did you mean {meant}?"
        return f"unknown field; {remedy}"
    text: str = error["msg"]
    return text.removeprefix("Value error, ")


async def _framework_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, detail = _FRAMEWORK_ERRORS.get(error.status_code, ("http_error", str(error.detail)))
    headers = {"Allow": _methods(request)} if error.status_code == 405 else error.headers
    return problem(request, error.status_code, code, detail, headers=headers)


def _methods(request: Request) -> str:
    """All methods of an address. The framework knows only those of one route."""
    taken = []
    for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            taken.append(method)
    return ", ".join(taken)


async def _database_unavailable(request: Request, error: Exception) -> Response:
    """The request may have taken effect. With an Idempotency-Key or a run id it is safe to repeat."""
    reason = reason_of(error)
    code, detail = _unavailable(reason)
    headers = {"Retry-After": "5"} if reason in _LASTING else None
    return problem(request, 503, code, detail, {"reason": reason.value}, headers)


def _unavailable(reason: UnavailableReason) -> tuple[str, str]:
    if reason in _BUSY:
        return "overloaded", "The server is busy. Try again in a moment."
    return "database_unavailable", _UNAVAILABLE.get(reason, _NO_RESPONSE)


async def _internal_error(request: Request, error: Exception) -> Response:
    record = record_of(request.scope)
    log.error("request_failed", request_id=record and record.request_id, exc_info=error)
    return problem(
        request,
        500,
        "internal_error",
        "An internal error occurred. Search the server's log for this trace_id, which is `request_id` there.",
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
