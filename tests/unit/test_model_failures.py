"""Failures of a provider: their kind, and which details users may see."""

import json
from datetime import UTC, datetime

import pytest

from app.domain.inference.failures import FailureKind, failed
from app.llm.failures import failure_of_answer, kind_of_status, presentable, retry_after, secrets_of

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "status, words, kind",
    [
        (400, "", FailureKind.INVALID_REQUEST),
        (400, "This model's maximum context length is 8192", FailureKind.CONTEXT_OVERFLOW),
        (400, "content_filter", FailureKind.CONTENT_FILTERED),
        (402, "", FailureKind.UNAUTHORIZED),
        (403, "", FailureKind.UNAUTHORIZED),
        (403, "content_policy_violation", FailureKind.CONTENT_FILTERED),
        (404, "", FailureKind.MODEL_NOT_FOUND),
        (408, "", FailureKind.TIMEOUT),
        (413, "", FailureKind.CONTEXT_OVERFLOW),
        (429, "", FailureKind.RATE_LIMITED),
        (429, "engine_overloaded_error", FailureKind.OVERLOADED),
        (429, "insufficient_quota", FailureKind.UNAUTHORIZED),
        (302, "", FailureKind.INVALID_REQUEST),
        (500, "", FailureKind.PROVIDER),
        (500, "the engine is overloaded", FailureKind.OVERLOADED),
        (504, "", FailureKind.TIMEOUT),
        (529, "", FailureKind.OVERLOADED),
    ],
)
def test_the_status_and_the_body_decide_the_kind_of_failure(
    status: int, words: str, kind: FailureKind
) -> None:
    assert kind_of_status(status, words) is kind


def test_exactly_the_transient_failures_are_retryable() -> None:
    assert {kind for kind in FailureKind if kind.retryable} == {
        FailureKind.PROVIDER,
        FailureKind.RATE_LIMITED,
        FailureKind.OVERLOADED,
        FailureKind.TIMEOUT,
        FailureKind.STREAM_INTERRUPTED,
    }


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_from_now(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    "body, detail",
    [
        ({"error": {"message": "no\n  way", "type": "t"}}, "HTTP 400: no way"),
        ({"error": "no way"}, "HTTP 400: no way"),
        ({"detail": "no way"}, "HTTP 400: no way"),
        ([{"error": {"message": "no way"}}], "HTTP 400: no way"),
        ({"error": {"code": "x_y"}}, "HTTP 400: x_y"),
    ],
)
def test_an_error_body_of_any_shape_is_understood(body: object, detail: str) -> None:
    assert failure_of_answer(400, json.dumps(body).encode(), {}, NOW).detail == detail


def test_an_error_body_that_is_not_json_is_shown_unchanged() -> None:
    assert failure_of_answer(502, b"<h1>Bad Gateway</h1>", {}, NOW).detail == (
        "HTTP 502: <h1>Bad Gateway</h1>"
    )
    assert failure_of_answer(502, b"", {}, NOW).detail == "HTTP 502"


def test_a_credential_is_removed_from_an_error_of_any_length() -> None:
    secrets = secrets_of("sk-abcdefgh", {"authorization": "Bearer tok-12345678", "x": "1"})
    failure_with_secrets = failed(
        FailureKind.UNAUTHORIZED, "1 sk-abcdefgh, tok-12345678 " + "x" * 480 + "sk-abcdefgh"
    )
    detail = presentable(failure_with_secrets, secrets).detail
    assert detail.startswith("1 ***, *** ")
    assert "sk-" not in detail
    assert len(detail) <= 500
