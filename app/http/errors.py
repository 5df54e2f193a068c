"""Refusals as problem+json: the one place where the domain's errors get HTTP statuses."""

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
from app.domain.timestamps import format_timestamp
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
_RETRYABLE = frozenset({429, 503})
_RETRY_AFTER = {429: "5", 503: "1"}
_TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid request",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
}
_CODES_OF_THE_FRAMEWORK = {
    400: ("malformed_body", "The body isn't valid JSON in UTF-8."),
    404: ("not_found", "There is nothing at this address; GET /openapi.json lists what there is."),
    405: ("method_not_allowed", "This address doesn't take this method."),
}
_MAX_ERRORS = 20
_MAX_INSTANCE_LENGTH = 500
_BUSY = frozenset({UnavailableReason.BUSY, UnavailableReason.TOO_MANY_CONNECTIONS})
_LASTING = frozenset(
    {UnavailableReason.READ_ONLY, UnavailableReason.DISK_FULL, UnavailableReason.OUT_OF_RESOURCES}
)
_DOES_NOT_ANSWER = "The database doesn't answer. Try again in a moment."
_UNAVAILABLE = {
    UnavailableReason.READ_ONLY: "The database takes no writes for now. Try again in a moment.",
    UnavailableReason.DISK_FULL: "The database has no room left. Try again later.",
    UnavailableReason.OUT_OF_RESOURCES: "The database lacks what it needs to work. Try again later.",
    UnavailableReason.LOCKED: "Somebody else is changing the same. Try again in a moment.",
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
    """The one shape of every error. `error` repeats the sentence for clients of older services."""
    trace_id = new_id()
    body = {
        "type": f"https://holdfast.invalid/problems/{code}",
        "title": _TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        "instance": quote(request.url.path[:_MAX_INSTANCE_LENGTH], safe="/:"),
        "code": code,
        "trace_id": trace_id,
        "retryable": status in _RETRYABLE,
        "error": detail,
        **{key: _plain(value) for key, value in (facts or {}).items()},
    }
    more = {"Retry-After": _RETRY_AFTER[status]} if status in _RETRY_AFTER else {}
    log.info("refused", status=status, code=code, trace_id=trace_id, path=request.url.path)
    return Response(
        compact(storable(body)),
        status_code=status,
        media_type=PROBLEM,
        headers={**more, **(headers or {})},
    )


def install(app: FastAPI) -> None:
    """Give every way of failing its problem."""
    app.add_exception_handler(errors.Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _of_the_framework)
    for kind in DATABASE_UNAVAILABLE:
        app.add_exception_handler(kind, _database_away)
    app.add_exception_handler(Exception, _broken)


def refusal(request: Request, error: errors.Refusal) -> Response:
    """The problem that a refusal is answered with."""
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return problem(request, status, error.code, error.detail, error.facts, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.Refusal)
    return refusal(request, error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        code, detail = _CODES_OF_THE_FRAMEWORK[400]
        return problem(request, 400, code, detail)
    if any(one["type"] == "missing" and tuple(one["loc"]) == ("body",) for one in found):
        return problem(
            request,
            422,
            "invalid_request",
            "A JSON body is needed, sent with Content-Type: application/json.",
        )
    places = [
        {"at": ".".join(str(part)[:100] for part in one["loc"]), "problem": _sentence(one)[:300]}
        for one in found[:_MAX_ERRORS]
    ]
    detail = "; ".join(f"{place['at']}: {place['problem']}" for place in places[:3])
    is_schema = all(one["type"] == "schema_unsupported" for one in found)
    code = "schema_unsupported" if is_schema else "invalid_request"
    return problem(request, 422, code, detail, {"errors": places})


def _sentence(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such field; a misspelt one must not pass for its default"
    text: str = error["msg"]
    return text.removeprefix("Value error, ")


async def _of_the_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, detail = _CODES_OF_THE_FRAMEWORK.get(error.status_code, ("http_error", str(error.detail)))
    headers = {"Allow": _methods(request)} if error.status_code == 405 else error.headers
    return problem(request, error.status_code, code, detail, headers=headers)


def _methods(request: Request) -> str:
    """All that an address takes: the framework itself knows the methods of one route only."""
    taken = []
    for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            taken.append(method)
    return ", ".join(taken)


async def _database_away(request: Request, error: Exception) -> Response:
    """What was asked may have happened all the same: under its key, or its run's id, it can be repeated."""
    reason = reason_of(error)
    if reason in _BUSY:
        code, detail = "overloaded", "The server is busy. Try again in a moment."
    else:
        code, detail = "database_unavailable", _UNAVAILABLE.get(reason, _DOES_NOT_ANSWER)
    headers = {"Retry-After": "5"} if reason in _LASTING else None
    return problem(request, 503, code, detail, {"reason": reason.value}, headers)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("request_broken", exc_info=error)
    return problem(
        request, 500, "internal_error", "Something broke on our side. The trace_id is in the logs."
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
