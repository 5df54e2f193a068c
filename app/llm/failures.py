"""Maps a provider's error to a kind of failure by its status, headers and text."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed

MAX_DETAIL_CHARACTERS = 500


_KINDS_BY_TEXT: tuple[tuple[FailureKind, tuple[str, ...]], ...] = (
    (
        FailureKind.CONTEXT_OVERFLOW,
        (
            "context_length_exceeded",
            "maximum context length",
            "context window",
            "prompt is too long",
            "exceeds the maximum number of tokens",
            "number of tokens allowed",
        ),
    ),
    (
        FailureKind.CONTENT_FILTERED,
        ("content_filter", "content_policy", "content management policy", "responsibleai"),
    ),
    (
        FailureKind.UNAUTHORIZED,
        (
            *("insufficient_quota", "billing", "credit balance is too low"),
            *("invalid_api_key", "api_key_invalid"),
        ),
    ),
    (FailureKind.MODEL_NOT_FOUND, ("model_not_found", "deploymentnotfound")),
    (FailureKind.OVERLOADED, ("overloaded", "service_unavailable", "at capacity")),
    (
        FailureKind.RATE_LIMITED,
        ("rate_limit", "rate limit", "too many requests", "resource_exhausted"),
    ),
)


def kind_of_status(status: int, text: str = "") -> FailureKind:
    """Map an HTTP status to a kind. The text of the error decides for statuses that servers use loosely."""
    kind = kind_of_text(text)
    match status:
        case 401 | 402:
            return FailureKind.UNAUTHORIZED
        case 403:
            return kind if kind is FailureKind.CONTENT_FILTERED else FailureKind.UNAUTHORIZED
        case 404:
            return FailureKind.MODEL_NOT_FOUND
        case 408 | 504:
            return FailureKind.TIMEOUT
        case 413:
            return FailureKind.CONTEXT_OVERFLOW
        case 429 if "resource_exhausted" in text.lower():
            # Google names billing in the text of each of its rate limits.
            return FailureKind.RATE_LIMITED
        case 429:
            return (
                kind
                if kind in (FailureKind.UNAUTHORIZED, FailureKind.OVERLOADED)
                else FailureKind.RATE_LIMITED
            )
        case 503 | 529:
            return FailureKind.OVERLOADED
        case _ if status >= 500:
            return (
                FailureKind.OVERLOADED if kind is FailureKind.OVERLOADED else FailureKind.PROVIDER
            )
        case _:
            return kind if kind is not None else FailureKind.INVALID_REQUEST


def kind_of_text(text: str) -> FailureKind | None:
    """Map an error's code, type and message to a kind; None if they don't identify one."""
    lowered = text.lower()
    for kind, signs in _KINDS_BY_TEXT:
        if any(sign in lowered for sign in signs):
            return kind
    return None


def failure_of_error(error: Any) -> InferenceFailed:
    """Convert an error object of a stream. The stream's HTTP status was 200."""
    message, words, code = _parts(error)
    delay = retry_delay(error)
    if code.isdigit() and 400 <= int(code) < 600:
        return failed(kind_of_status(int(code), words), message, retry_after=delay)
    return failed(kind_of_text(words) or FailureKind.PROVIDER, message, retry_after=delay)


def failure_of_answer(
    status: int, body: bytes, headers: Mapping[str, str], now: datetime
) -> InferenceFailed:
    """Convert a response whose status is an error."""
    text = body.decode("utf-8", "replace")
    delay = retry_after(headers, now)
    try:
        error = json.loads(text)
        message, words, _ = _parts(error)
        delay = retry_delay(error) if delay is None else delay
    except ValueError:
        message, words = _one_line(text), text
    return failed(
        kind_of_status(status, words),
        f"HTTP {status}: {message}" if message else f"HTTP {status}",
        retry_after=delay,
    )


def failure_of_unstreamed(body: bytes) -> InferenceFailed:
    """Convert a 200 response that isn't a stream: an error object, or a server that can't stream."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if isinstance(answer, Mapping) and answer.get("error"):
        return failure_of_error(answer["error"])
    return failed(FailureKind.PROVIDER, "the model's server answered without streaming")


def message_of(body: Any) -> str:
    """The message of an error body."""
    return _parts(body)[0]


def _parts(body: Any) -> tuple[str, str, str]:
    """The message, all text, and the code of an error body, in any of the shapes that servers use."""
    body = _error_in(body)
    if not isinstance(body, Mapping):
        return _one_line(str(body)), str(body), ""
    message = body.get("message") or body.get("detail") or ""
    code = str(body.get("code") or "")
    reasons = " ".join(str(each.get("reason") or "") for each in _details_of(body))
    words = f"{code} {body.get('type') or ''} {body.get('status') or ''} {reasons} {message}"
    return _one_line(str(message) or code or "no reason given"), words, code


def _error_in(body: Any) -> Any:
    """The error object of a body."""
    if isinstance(body, list) and body:
        body = body[0]
    return body["error"] if isinstance(body, Mapping) and "error" in body else body


def _details_of(error: Any) -> list[Mapping[str, Any]]:
    """The details of an error in Google's shape, such as its reason and the delay before the next request."""
    details = error.get("details") if isinstance(error, Mapping) else None
    return (
        [each for each in details if isinstance(each, Mapping)] if isinstance(details, list) else []
    )


def retry_delay(body: Any) -> float | None:
    """The delay in seconds that an error's details ask for, as Google writes it: `"17.5s"`."""
    for each in _details_of(_error_in(body)):
        delay = each.get("retryDelay")
        if isinstance(delay, str) and (seconds := _seconds(delay.removesuffix("s"))) is not None:
            return seconds
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The delay in seconds that the provider asks for, from any of its headers."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def secrets_of(api_key: str | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets to remove from an error's text. Short values are left out: they occur by chance."""
    values = [api_key or "", *headers.values()]
    words = [word for value in values for word in (value, *value.split())]
    return tuple(word for word in words if len(word) >= 8)


def presentable(failure: InferenceFailed, secrets: Iterable[str]) -> InferenceFailed:
    """Return the same failure with a shortened text and without credentials that a provider echoed."""
    detail = failure.detail
    for secret in secrets:
        detail = detail.replace(secret, "***")
    return InferenceFailed(
        failure.kind,
        detail[:MAX_DETAIL_CHARACTERS],
        retryable=failure.retryable,
        retry_after=failure.retry_after,
    )
