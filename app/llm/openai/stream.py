"""Parses an OpenAI-compatible stream: bytes in, model chunks out. No I/O, no clock."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from app.domain.inference.failures import FailureKind
from app.domain.json_values import JsonObject, compact
from app.domain.threads.citations import Citation
from app.llm.failures import failure_of_error
from app.llm.http.answer_parser import AnswerParser, token_count
from app.llm.openai.citations import citations_of
from app.llm.openai.provider_data import DETAILS, EXTRA, StreamedReasoning
from app.llm.openai.tool_call_assembly import ToolCallAssembly
from app.runtime.ports.models import (
    Citations,
    ModelFinished,
    ProviderParts,
    ReasoningChunk,
    StopReason,
    TextChunk,
    TokenUsage,
    UsageSoFar,
)

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


class OpenAIStream(AnswerParser):
    """Parses one answer of an OpenAI-compatible server."""

    def __init__(self, new_call_id: Callable[[], str], issuer: JsonObject | None = None) -> None:
        super().__init__()
        self._calls = ToolCallAssembly(new_call_id)
        self._issuer = issuer or {}
        self._reasoning: StreamedReasoning | None = None
        """Only of answers with something to send back."""
        self._sent_parts: ProviderParts | None = None
        self._calls_with_parts = 0
        """How many calls were open when provider data were added last."""
        self._call_keys = _CallKeys()
        self._citations: list[Citation] = []
        self._stop_reason: StopReason | None = None
        self._usage: TokenUsage | None = None

    @property
    def _has_stopped(self) -> bool:
        return self._stop_reason is not None

    def _is_last_line(self, text: str) -> bool:
        return text == "[DONE]"

    def _apply_event(self, event: dict[str, Any]) -> None:
        choices = event.get("choices")
        if choices:
            choice = choices[0]
            delta = choice.get("delta")
            if delta:
                self._apply_delta(delta)
            reason = choice.get("finish_reason")
            if reason is not None:
                self._apply_stop_reason(reason)
        usage = event.get("usage")
        if usage:
            self._usage = usage_of(usage)
            if self._stop_reason is None:
                self._joiner.add_chunk(UsageSoFar(self._usage))
        if event.get("error"):
            self.failure = failure_of_error(event["error"])

    def _apply_delta(self, delta: dict[str, Any]) -> None:
        text = delta.get("content")
        if text and len(delta) == 1 and isinstance(text, str):
            # Nearly all deltas.
            self._joiner.add(TextChunk, text)
            return
        reasoning = delta.get("reasoning") or delta.get("reasoning_content")
        if isinstance(reasoning, str):
            if reasoning:
                self._joiner.add(ReasoningChunk, reasoning)
            self._reasoning = self._reasoning or StreamedReasoning()
            self._reasoning.add_text(delta, reasoning)
        if details := delta.get(DETAILS):
            self._reasoning = self._reasoning or StreamedReasoning()
            self._reasoning.add_details(details)
        content = delta.get("content") or delta.get("refusal")
        if content:
            self._joiner.add(TextChunk, content if isinstance(content, str) else _text_in(content))
        if annotations := delta.get("annotations"):
            self._citations += citations_of(annotations)
            self._joiner.add_chunk(Citations(tuple(self._citations)))
        for piece in delta.get("tool_calls") or ():
            function = piece.get("function") or {}
            arguments = function.get("arguments") or ""
            key = self._call_keys.key_of(piece)
            for chunk in self._calls.add(
                key,
                id=piece.get("id") or "",
                name=function.get("name") or "",
                arguments=arguments if isinstance(arguments, str) else compact(arguments),
            ):
                self._joiner.add_chunk(chunk)
            if extra := piece.get(EXTRA):
                self._reasoning = self._reasoning or StreamedReasoning()
                self._reasoning.add_call_data(key, extra)
            if self._reasoning is not None and self._calls.opened != self._calls_with_parts:
                self._reasoning.call_opened()
                self._add_provider_parts(is_whole=False)

    def _add_provider_parts(self, *, is_whole: bool) -> None:
        """Add what the server wants back, as far as it is complete."""
        if self._reasoning is None:
            return
        self._calls_with_parts = self._calls.opened
        parts = self._reasoning.parts(
            self._issuer, self._calls.id_at, has_calls=self._calls.any_opened, is_whole=is_whole
        )
        if parts is not None and parts != self._sent_parts:
            self._sent_parts = parts
            self._joiner.add_chunk(parts)

    def _apply_stop_reason(self, reason: Any) -> None:
        if reason == "error":
            self._fail(FailureKind.PROVIDER, "the model stopped with an error")
        self._stop_reason = _STOP_REASONS.get(reason, StopReason.END_TURN)

    def _finish(self) -> None:
        for opened in self._calls.open_all():
            self._joiner.add_chunk(opened)
        self._add_provider_parts(is_whole=True)
        reason = self._stop_reason or StopReason.END_TURN
        # Several servers send "stop" after tool calls.
        if reason is StopReason.END_TURN and self._calls.any_opened:
            reason = StopReason.TOOL_USE
        self._joiner.add_chunk(ModelFinished(reason, self._usage))
        self.complete = True


class _CallKeys:
    """Identifies the call of a piece by its index or its id. A piece without both belongs to the previous call."""

    def __init__(self) -> None:
        self._current: dict[int, tuple[int, str]] = {}
        self._by_id: dict[str, Hashable] = {}
        self._latest: Hashable = 0

    def key_of(self, piece: Mapping[str, Any]) -> Hashable:
        index, id_ = piece.get("index"), piece.get("id") or ""
        if isinstance(index, int):
            self._latest = self._key_at(index, id_, bool((piece.get("function") or {}).get("name")))
        elif id_:
            self._latest = self._by_id.setdefault(id_, ("id", id_))
        return self._latest

    def _key_at(self, index: int, id_: str, has_name: bool) -> Hashable:
        """Some servers give every parallel call index 0. A new id with a name then means a new call."""
        generation, known_id = self._current.get(index, (0, ""))
        if id_ and known_id and id_ != known_id and has_name:
            generation += 1
        self._current[index] = (generation, id_ or known_id)
        return index, generation


def _text_in(content: Any) -> str:
    """The text of content that is a list of parts."""
    return "".join(part["text"] for part in content if part.get("type") == "text")


def usage_of(raw: Mapping[str, Any]) -> TokenUsage:
    """Token counts by any of the names that OpenAI-compatible servers use."""
    prompt = raw.get("prompt_tokens_details") or {}
    completion = raw.get("completion_tokens_details") or {}
    return TokenUsage(
        prompt_tokens=token_count(raw.get("prompt_tokens")),
        completion_tokens=token_count(raw.get("completion_tokens")),
        total_tokens=token_count(raw.get("total_tokens")),
        cache_read_tokens=token_count(
            prompt.get("cached_tokens", raw.get("prompt_cache_hit_tokens"))
        ),
        cache_creation_tokens=token_count(prompt.get("cache_write_tokens")),
        thinking_tokens=token_count(completion.get("reasoning_tokens")),
    )
