"""Answers of another Holdfast over HTTP: read within bounds, refusals in our words, and what is none at all."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from app.backends.base import BackendError
from app.backends.retrying import TransientFailure
from app.domain.json_tokens import has_more_tokens
from app.domain.json_values import Json, JsonObject, as_object

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Of one answer, or one event: more than any that this service gives."""
MAX_TOKENS = 200_000
"""Brackets, commas and strings of one answer, or one event: reading more would hold the loop up."""
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
    """The value of a JSON text. Raises ValueError, also for a text that takes long to read."""
    if has_more_tokens(text, MAX_TOKENS):
        raise ValueError(f"it has more than {MAX_TOKENS} values")
    value: Json = json.loads(text)
    return value


def parse_refusal(status: int, body: bytes) -> BackendError:
    """A problem of theirs as one of ours, under the same code."""
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
    """Whatever can't be read as an answer of this service isn't one: asking again won't help."""
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
        said = f"The remote doesn't answer as a Holdfast does: {error!r}"
        raise BackendError(UNREADABLE_ANSWER, said[:500]) from error
