"""Parses the server-sent events of a model's answer: bytes in, model chunks out. No I/O, no clock."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.domain.json_tokens import has_more_tokens
from app.llm.http.chunk_joining import ChunkJoiner
from app.runtime.ports.models import ModelChunk

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Maximum size of a line. A longer one isn't an answer, and buffering it would fill memory."""
MAX_LINE_TOKENS = 100_000
"""Maximum number of JSON tokens in a line. Parsing more would block the event loop."""

_decode = msgspec.json.Decoder().decode
_scan = json.JSONDecoder().raw_decode


class AnswerParser(ABC):
    """Parses one answer. Feed it the bytes in pieces of any size; the chunks are the same.

    An error isn't raised, because the chunks before it are still useful: `failure` holds it and the rest of
    the stream is ignored. `complete` is True once a `ModelFinished` was among the chunks. Subclasses read the
    events of one provider's wire.
    """

    def __init__(self) -> None:
        self.complete = False
        self.failure: InferenceFailed | None = None
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._at_end = False
        self._joiner = ChunkJoiner()

    @abstractmethod
    def _apply_event(self, event: dict[str, Any]) -> None:
        """Read one event. May raise AttributeError, TypeError or LookupError if it has an unknown shape."""

    @property
    @abstractmethod
    def _has_stopped(self) -> bool:
        """Whether the model has said why it stopped. The end of the bytes then ends the answer."""

    @abstractmethod
    def _finish(self) -> None:
        """Add the last chunks, and set `complete`."""

    def _is_last_line(self, text: str) -> bool:
        """Whether this text, which isn't JSON, ends the answer."""
        return False

    def feed(self, data: bytes) -> Sequence[ModelChunk]:
        """Return the chunks of all complete lines. Neighbouring pieces of one kind are joined."""
        end = data.rfind(b"\n")
        if end < 0:
            self._buffer_rest(data)
            return ()
        complete = data[:end]
        if self._buffer:
            complete = b"".join([*self._buffer, complete])
            self._buffer, self._buffered_bytes = [], 0
        if len(data) > end + 1:
            self._buffer_rest(data[end + 1 :])
        for line in complete.split(b"\n"):
            if line.startswith(b"data:"):
                if self.complete or self.failure is not None:
                    break
                self._read(line)
        return self._joiner.take()

    def end(self) -> Sequence[ModelChunk]:
        """Handle the end of the bytes. An answer with a stop reason is complete."""
        self._at_end = True
        chunks = [*self.feed(b"\n")] if self._buffered_bytes else []
        if not self.complete and self.failure is None:
            if self._has_stopped:
                self._finish()
            else:
                self._fail_interrupted()
        return [*chunks, *self._joiner.take()]

    def _buffer_rest(self, data: bytes) -> None:
        """Buffer the beginning of a line until its end arrives."""
        self._buffer.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes > MAX_LINE_BYTES:
            self._buffer, self._buffered_bytes = [], 0
            self._fail(FailureKind.PROVIDER, "the model's stream has a line without end")

    def _read(self, line: bytes) -> None:
        data = line[5:]
        if len(data) > MAX_LINE_TOKENS and has_more_tokens(_text(data), MAX_LINE_TOKENS):
            self._fail(FailureKind.PROVIDER, "the model's stream has a chunk that is too large")
            return
        try:
            event = _value_in(data)
        except (ValueError, RecursionError):
            text = _text(data)
            if self._is_last_line(text):
                self._finish()
            elif self._at_end:
                self._fail_interrupted()
            elif text:
                self._fail(FailureKind.PROVIDER, "the model's stream has a chunk that isn't JSON")
            return
        try:
            self._apply_event(event)
        except (AttributeError, TypeError, LookupError):
            self._fail(FailureKind.PROVIDER, "the model's stream has a chunk of an unknown shape")

    def _fail_interrupted(self) -> None:
        self._fail(FailureKind.STREAM_INTERRUPTED, "the model's stream ended before its answer did")

    def _fail(self, kind: FailureKind, detail: str) -> None:
        self.failure = self.failure or failed(kind, detail)


def _value_in(data: bytes) -> Any:
    """The JSON value at the beginning of the data. Raises ValueError or RecursionError."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The standard library also takes lone surrogates, huge numbers, and what follows the value.
        return _scan(_text(data))[0]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


def token_count(value: Any) -> int | None:
    """A count that a provider reports; None if it isn't one."""
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else None
