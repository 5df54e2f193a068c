"""How a provider says no: one table from statuses, headers and words to the kinds of failure."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed

DETAIL_LIMIT = 500


_KINDS_BY_WORDS: tuple[tuple[FailureKind, tuple[str, ...]], ...] = (
    (
        FailureKind.CONTEXT_OVERFLOW,
        (
            "context_length_exceeded",
            "maximum context length",
            "context window",
            "prompt is too long",
            "exceeds the maximum number of tokens",
        ),
    ),
    (
        FailureKind.CONTENT_FILTERED,
        ("content_filter", "content_policy", "content management policy", "responsibleai"),
    ),
    (FailureKind.UNAUTHORIZED, ("insufficient_quota", "billing", "invalid_api_key")),
    (FailureKind.MODEL_NOT_FOUND, ("model_not_found", "deploymentnotfound")),
    (FailureKind.OVERLOADED, ("overloaded", "service_unavailable", "at capacity")),
    (
        FailureKind.RATE_LIMITED,
        ("rate_limit", "rate limit", "too many requests", "resource_exhausted"),
    ),
)


def kind_of_status(status: int, words: str = "") -> FailureKind:
    """What an HTTP status means; the answer's own words decide where statuses are used loosely."""
    said = kind_of_words(words)
    match status:
        case 401 | 402:
            return FailureKind.UNAUTHORIZED
        case 403:
            return said if said is FailureKind.CONTENT_FILTERED else FailureKind.UNAUTHORIZED
        case 404:
            return FailureKind.MODEL_NOT_FOUND
        case 408 | 504:
            return FailureKind.TIMEOUT
        case 413:
            return FailureKind.CONTEXT_OVERFLOW
        case 429:
            return (
                said
                if said in (FailureKind.UNAUTHORIZED, FailureKind.OVERLOADED)
                else FailureKind.RATE_LIMITED
            )
        case 503 | 529:
            return FailureKind.OVERLOADED
        case _ if status >= 500:
            return (
                FailureKind.OVERLOADED if said is FailureKind.OVERLOADED else FailureKind.PROVIDER
            )
        case _:
            return said if said is not None else FailureKind.INVALID_REQUEST


def kind_of_words(words: str) -> FailureKind | None:
    """What an error's code, type and message give away, or nothing."""
    lowered = words.lower()
    for kind, signs in _KINDS_BY_WORDS:
        if any(sign in lowered for sign in signs):
            return kind
    return None


def failure_of_error(error: Any) -> InferenceFailed:
    """An error object that came inside a stream, whose own status said 200."""
    message, words, code = _parts(error)
    if code.isdigit() and 400 <= int(code) < 600:
        return failed(kind_of_status(int(code), words), message)
    return failed(kind_of_words(words) or FailureKind.PROVIDER, message)


def failure_of_answer(
    status: int, body: bytes, headers: Mapping[str, str], now: datetime
) -> InferenceFailed:
    """An answer that isn't a success."""
    text = body.decode("utf-8", "replace")
    try:
        message, words, _ = _parts(json.loads(text))
    except ValueError:
        message, words = _one_line(text), text
    return failed(
        kind_of_status(status, words),
        f"HTTP {status}: {message}" if message else f"HTTP {status}",
        retry_after=retry_after(headers, now),
    )


def failure_of_unstreamed(body: bytes) -> InferenceFailed:
    """A success that isn't a stream: an error in disguise, or a server that can't stream."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if isinstance(answer, Mapping) and answer.get("error"):
        return failure_of_error(answer["error"])
    return failed(FailureKind.PROVIDER, "the model's server answered without streaming")


def message_of(body: Any) -> str:
    """What an error body says to people."""
    return _parts(body)[0]


def _parts(body: Any) -> tuple[str, str, str]:
    """Message, all words and code of an error body, in any of the shapes that servers give it."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, Mapping) and "error" in body:
        body = body["error"]
    if not isinstance(body, Mapping):
        return _one_line(str(body)), str(body), ""
    message = body.get("message") or body.get("detail") or ""
    code = str(body.get("code") or "")
    words = f"{code} {body.get('type') or ''} {body.get('status') or ''} {message}"
    return _one_line(str(message) or code or "no reason given"), words, code


def _one_line(text: str) -> str:
    return " ".join(text.split())


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that the provider asks us to wait, from any of the headers that say so."""
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
    """What must not come back in an error's words. Short values are no secrets, and occur by chance."""
    values = [api_key or "", *headers.values()]
    words = [word for value in values for word in (value, *value.split())]
    return tuple(word for word in words if len(word) >= 8)


def presentable(failure: InferenceFailed, secrets: Iterable[str]) -> InferenceFailed:
    """The same failure, short, and with whatever a provider echoed of our credentials blotted out."""
    detail = failure.detail
    for secret in secrets:
        detail = detail.replace(secret, "***")
    return InferenceFailed(
        failure.kind,
        detail[:DETAIL_LIMIT],
        retryable=failure.retryable,
        retry_after=failure.retry_after,
    )
