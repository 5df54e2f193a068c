"""Reads responses of another Holdfast: limits their size, and converts problems to our errors."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from app.backends.base import BackendError
from app.backends.retrying import TransientFailure
from app.domain.json_tokens import has_more_tokens
from app.domain.json_values import Json, JsonObject, as_object

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Maximum bytes of one response or event. Larger than any that the service sends."""
MAX_TOKENS = 200_000
"""Maximum brackets, commas and strings of a response or event. Parsing more would block the loop."""
UNREACHABLE = "remote_unreachable"
UNREADABLE_ANSWER = "remote_garbled"
_PASSES = (429, 502, 503, 504)


async def body_of(response: httpx2.Response) -> bytes:
    pieces, size = [], 0
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise BackendError(
                UNREADABLE_ANSWER,
                f"The remote Holdfast answers with over {MAX_ANSWER_BYTES} bytes.",
            )
        pieces.append(piece)
    return b"".join(pieces)


def parse_answer(body: bytes) -> JsonObject:
    answer = as_object(read(body.decode()))
    if answer is None:
        raise ValueError("the answer is no object")
    return answer


def read(text: str) -> Json:
    """Parse a JSON text. Raises ValueError, also for a text that would take long to parse."""
    if has_more_tokens(text, MAX_TOKENS):
        raise ValueError(f"it has more than {MAX_TOKENS} values")
    value: Json = json.loads(text)
    return value


def parse_refusal(status: int, body: bytes) -> BackendError:
    """Convert a problem of the remote to our error with the same code."""
    try:
        problem = as_object(read(body.decode())) or {}
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        code, detail = "remote_refused", f"HTTP {status}"
    if status == 404 and code == "run_not_found":
        code = "remote_run_lost"
    kind = TransientFailure if status in _PASSES else BackendError
    return kind(code, f"The remote Holdfast refuses: {detail}"[:500])


def unreachable_failure(error: httpx2.TransportError) -> TransientFailure:
    why = str(error) or type(error).__name__
    return TransientFailure(UNREACHABLE, f"The remote Holdfast can't be reached: {why}"[:500])


@contextmanager
def parse_errors_translated() -> Iterator[None]:
    """Convert a response that isn't Holdfast's to an error. A retry doesn't help."""
    try:
        yield
    except (
        httpx2.SSEError,
        httpx2.DecodingError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        detail = f"The remote doesn't answer as a Holdfast does: {error!r}"
        raise BackendError(UNREADABLE_ANSWER, detail[:500]) from error
