"""The OpenAI-compatible stream: bytes in, model chunks out; no I/O, no clock."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from app.domain.errors import InferenceFailed
from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.json_tokens import has_more_tokens
from app.domain.json_values import compact
from app.llm.failures import failure_of_error
from app.llm.openai.tool_call_assembly import ToolCallAssembly
from app.runtime.ports import (
    CallArguments,
    ModelChunk,
    ModelFinished,
    ReasoningChunk,
    StopReason,
    TextChunk,
    TokenUsage,
)

LINE_LIMIT = 4 * 1024 * 1024
"""A line that grows beyond this isn't an answer; waiting for its end would only fill memory."""
MAX_LINE_TOKENS = 100_000
"""Brackets, commas and strings of one line: reading more of them would hold the loop up."""

_STOP_REASONS = {
    "stop": StopReason.END_TURN,
    "eos": StopReason.END_TURN,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "content_filter": StopReason.CONTENT_FILTER,
}

_scan = json.JSONDecoder().raw_decode


class OpenAIStream:
    """Reads one answer. Feed it what arrives, in pieces of any size; the chunks are the same.

    Errors don't raise: what came before one is still worth having, so `failure` holds it and the rest of
    the stream is ignored. `complete` says that `Finished` was among the chunks.
    """

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self.complete = False
        self.failure: InferenceFailed | None = None
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._cut = False
        self._joined = _Joined()
        self._calls = ToolCallAssembly(new_call_id)
        self._places = _CallPlaces()
        self._stop_reason: StopReason | None = None
        self._usage: TokenUsage | None = None

    def feed(self, data: bytes) -> Sequence[ModelChunk]:
        """The chunks of all lines that are complete now, adjacent pieces of one thing made one."""
        end = data.rfind(b"\n")
        if end < 0:
            self._hold(data)
            return ()
        lines = b"".join([*self._rest, data[:end]]).decode("utf-8", "replace")
        self._rest, self._rest_bytes = [], 0
        self._hold(data[end + 1 :])
        for line in lines.split("\n"):
            if line.startswith("data:"):
                if self.complete or self.failure is not None:
                    break
                self._read(line)
        return self._joined.take()

    def _hold(self, data: bytes) -> None:
        """Keep the beginning of a line until its end has come."""
        self._rest.append(data)
        self._rest_bytes += len(data)
        if self._rest_bytes > LINE_LIMIT:
            self._rest, self._rest_bytes = [], 0
            self._fail(FailureKind.PROVIDER, "the model's stream has a line without end")

    def end(self) -> Sequence[ModelChunk]:
        """No more bytes will come. An answer that said why it stopped is whole, also without [DONE]."""
        self._cut = True
        chunks = [*self.feed(b"\n")] if self._rest_bytes else []
        if not self.complete and self.failure is None:
            if self._stop_reason is None:
                self._fail_cut()
            else:
                self._finish()
        return [*chunks, *self._joined.take()]

    def _read(self, line: str) -> None:
        start = 6 if line.startswith("data: ") else 5
        if has_more_tokens(line, MAX_LINE_TOKENS):
            self._fail(FailureKind.PROVIDER, "the model's stream has a chunk that is too large")
            return
        try:
            chunk, _ = _scan(line, start)
        except (ValueError, RecursionError):
            if line[start:].strip() == "[DONE]":
                self._finish()
            elif self._cut:
                self._fail_cut()
            elif line[start:].strip():
                self._fail(FailureKind.PROVIDER, "the model's stream has a chunk that isn't JSON")
            return
        try:
            self._take(chunk)
        except (AttributeError, TypeError, LookupError):
            self._fail(FailureKind.PROVIDER, "the model's stream has a chunk of an unknown shape")

    def _take(self, chunk: dict[str, Any]) -> None:
        choices = chunk.get("choices")
        if choices:
            choice = choices[0]
            delta = choice.get("delta")
            if delta:
                self._take_delta(delta)
            reason = choice.get("finish_reason")
            if reason is not None:
                self._take_stop(reason)
        usage = chunk.get("usage")
        if usage:
            self._usage = usage_of(usage)
        if chunk.get("error"):
            self.failure = failure_of_error(chunk["error"])

    def _take_delta(self, delta: dict[str, Any]) -> None:
        reasoning = delta.get("reasoning") or delta.get("reasoning_content")
        if isinstance(reasoning, str):
            self._joined.add(ReasoningChunk, reasoning)
        content = delta.get("content") or delta.get("refusal")
        if content:
            self._joined.add(TextChunk, content if isinstance(content, str) else _text_in(content))
        for piece in delta.get("tool_calls") or ():
            function = piece.get("function") or {}
            arguments = function.get("arguments") or ""
            for said in self._calls.add(
                self._places.of(piece),
                id=piece.get("id") or "",
                name=function.get("name") or "",
                arguments=arguments if isinstance(arguments, str) else compact(arguments),
            ):
                self._joined.add_chunk(said)

    def _take_stop(self, reason: Any) -> None:
        if reason == "error":
            self._fail(FailureKind.PROVIDER, "the model stopped with an error")
        self._stop_reason = _STOP_REASONS.get(reason, StopReason.END_TURN)

    def _finish(self) -> None:
        for opened in self._calls.open_all():
            self._joined.add_chunk(opened)
        reason = self._stop_reason or StopReason.END_TURN
        # Several servers say "stop" after tool calls.
        if reason is StopReason.END_TURN and self._calls.any_opened:
            reason = StopReason.TOOL_USE
        self._joined.add_chunk(ModelFinished(reason, self._usage))
        self.complete = True

    def _fail_cut(self) -> None:
        self._fail(FailureKind.STREAM_INTERRUPTED, "the model's stream ended before its answer did")

    def _fail(self, kind: FailureKind, detail: str) -> None:
        self.failure = self.failure or failed(kind, detail)


_Kind: TypeAlias = type[TextChunk] | type[ReasoningChunk] | CallId


class _Joined:
    """Chunks in their order, neighbours of one kind (or of one call) joined."""

    def __init__(self) -> None:
        self._chunks: list[ModelChunk] = []
        self._pieces: list[str] = []
        self._kind: _Kind | None = None

    def add(self, kind: _Kind, piece: str) -> None:
        if kind != self._kind:
            self._close()
            self._kind = kind
        self._pieces.append(piece)

    def add_chunk(self, chunk: ModelChunk) -> None:
        if isinstance(chunk, CallArguments):
            self.add(chunk.id, chunk.args_delta)
        else:
            self._close()
            self._chunks.append(chunk)

    def take(self) -> Sequence[ModelChunk]:
        self._close()
        chunks, self._chunks = self._chunks, []
        return chunks

    def _close(self) -> None:
        kind, self._kind = self._kind, None
        if kind is None:
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        self._chunks.append(CallArguments(kind, text) if isinstance(kind, str) else kind(text))


class _CallPlaces:
    """Which call a piece belongs to: by its index, by its id, or else the one before it."""

    def __init__(self) -> None:
        self._current: dict[int, tuple[int, str]] = {}
        self._by_id: dict[str, Hashable] = {}
        self._latest: Hashable = 0

    def of(self, piece: Mapping[str, Any]) -> Hashable:
        index, id_ = piece.get("index"), piece.get("id") or ""
        if isinstance(index, int):
            self._latest = self._at(index, id_, bool((piece.get("function") or {}).get("name")))
        elif id_:
            self._latest = self._by_id.setdefault(id_, ("id", id_))
        return self._latest

    def _at(self, index: int, id_: str, named: bool) -> Hashable:
        """Some servers give every parallel call index 0: another id with another name is another call."""
        generation, known_id = self._current.get(index, (0, ""))
        if id_ and known_id and id_ != known_id and named:
            generation += 1
        self._current[index] = (generation, id_ or known_id)
        return index, generation


def _text_in(content: Any) -> str:
    """The text of content that comes as a list of parts."""
    return "".join(part["text"] for part in content if part.get("type") == "text")


def usage_of(raw: Mapping[str, Any]) -> TokenUsage:
    """Token counts in any of the spellings that OpenAI-compatible servers have for them."""
    prompt = raw.get("prompt_tokens_details") or {}
    completion = raw.get("completion_tokens_details") or {}
    return TokenUsage(
        prompt_tokens=_count(raw.get("prompt_tokens")),
        completion_tokens=_count(raw.get("completion_tokens")),
        total_tokens=_count(raw.get("total_tokens")),
        cache_read_tokens=_count(prompt.get("cached_tokens", raw.get("prompt_cache_hit_tokens"))),
        cache_creation_tokens=_count(prompt.get("cache_write_tokens")),
        thinking_tokens=_count(completion.get("reasoning_tokens")),
    )


def _count(value: Any) -> int | None:
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else None
