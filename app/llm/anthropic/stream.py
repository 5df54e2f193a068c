"""Parses a stream of the Messages API: bytes in, model chunks out. No I/O, no clock."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind
from app.domain.json_values import compact
from app.domain.threads.citations import Citation
from app.domain.threads.provider_data import ProviderPart
from app.llm.anthropic.citations import citations_of
from app.llm.anthropic.provider_data import issuer_of, part_of
from app.llm.anthropic.usage import ReportedUsage
from app.llm.failures import failure_of_error
from app.llm.http.answer_parser import AnswerParser
from app.runtime.ports.models import (
    CallOpened,
    Citations,
    ModelFinished,
    ProviderParts,
    ReasoningChunk,
    StopReason,
    TextChunk,
    UsageSoFar,
)

_STOP_REASONS = {
    "end_turn": StopReason.END_TURN,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "refusal": StopReason.CONTENT_FILTER,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_USE,
}
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP status of each type of error. Within a stream there is only the type."""


class _Block:
    """One block of the answer while it streams."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.type: str = fields["type"]
        self.pieces: list[str] = []
        self.start = 0
        """Characters of the answer's text before this block."""
        self.call_id: CallId | None = None

    def complete(self) -> dict[str, Any]:
        """The block as a whole."""
        text = "".join(self.pieces)
        if self.type in ("text", "thinking"):
            return {**self.fields, self.type: text}
        if "input" in self.fields and text:
            return {**self.fields, "input": _parsed(text)}
        return self.fields


class AnthropicStream(AnswerParser):
    """Parses one answer."""

    def __init__(self, new_call_id: Callable[[], str], address: str, model: str) -> None:
        super().__init__()
        self._new_call_id = new_call_id
        self._address = address
        self._model = model
        self._transformations: list[Any] = []
        self._open: dict[Any, _Block] = {}
        self._parts: dict[int, ProviderPart] = {}
        self._unsent: dict[int, ProviderPart] = {}
        self._has_data = False
        self._call_ids: set[str] = set()
        self._characters = 0
        """Of the answer's text so far."""
        self._citations: list[Citation] = []
        self._stop_reason: StopReason | None = None
        self._usage = ReportedUsage()

    @property
    def _has_stopped(self) -> bool:
        return self._stop_reason is not None

    def _apply_event(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "content_block_delta":
                self._apply_delta(self._open[event["index"]], event["delta"])
            case "content_block_start":
                self._begin_block(event["index"], event["content_block"])
            case "content_block_stop":
                self._end_block(event["index"])
            case "message_start":
                self._begin(event["message"])
            case "message_delta":
                self._apply_end(event)
            case "message_stop":
                self._finish()
            case "error":
                self._apply_error(event["error"])
            case _:
                pass  # a ping, or something new

    def _begin(self, message: Mapping[str, Any]) -> None:
        self._transformations = message.get("input_transformations") or []
        self._usage.add(message.get("usage") or {})
        if (usage := self._usage.so_far()) is not None:
            self._joiner.add_chunk(UsageSoFar(usage))

    def _begin_block(self, index: Any, fields: dict[str, Any]) -> None:
        block = self._open[index] = _Block(fields)
        block.start = self._characters
        match block.type:
            case "text":
                self._add_text(block, fields.get("text") or "")
            case "thinking":
                self._add_reasoning(block, fields.get("thinking") or "")
            case "tool_use":
                block.call_id = self._unique(fields.get("id") or "")
                self._joiner.add_chunk(CallOpened(block.call_id, fields["name"]))
            case _:
                pass

    def _apply_delta(self, block: _Block, delta: Mapping[str, Any]) -> None:
        match delta["type"]:
            case "text_delta":
                self._add_text(block, delta["text"])
            case "thinking_delta":
                self._add_reasoning(block, delta["thinking"])
            case "input_json_delta":
                self._add_arguments(block, delta["partial_json"])
            case "signature_delta":
                signature = (block.fields.get("signature") or "") + delta["signature"]
                block.fields["signature"] = signature
            case "citations_delta":
                citations = block.fields.get("citations") or []
                block.fields["citations"] = [*citations, delta["citation"]]
            case "compaction_delta":
                block.fields |= {
                    key: value for key, value in delta.items() if key != "type" and value
                }
            case _:
                pass

    def _add_text(self, block: _Block, text: str) -> None:
        if text:
            block.pieces.append(text)
            self._characters += len(text)
            self._joiner.add(TextChunk, text)

    def _add_reasoning(self, block: _Block, text: str) -> None:
        if text:
            block.pieces.append(text)
            self._joiner.add(ReasoningChunk, text)

    def _add_arguments(self, block: _Block, piece: str) -> None:
        if piece:
            if block.call_id is not None:
                self._joiner.add(block.call_id, piece)
            block.pieces.append(piece)

    def _unique(self, id_: str) -> CallId:
        if not id_ or id_ in self._call_ids:
            id_ = self._new_call_id()
        self._call_ids.add(id_)
        return CallId(id_)

    def _end_block(self, index: Any) -> None:
        block = self._open.pop(index)
        given = block.fields.get("input")
        if block.call_id is not None and given and not block.pieces:
            self._add_arguments(block, compact(given))
        if block.type == "text" and (citations := block.fields.get("citations")):
            self._citations += citations_of(citations, block.start, self._characters)
            self._joiner.add_chunk(Citations(tuple(self._citations)))
        part = part_of(block.complete(), block.call_id)
        if part is None:
            return
        self._unsent[index] = part
        self._has_data = self._has_data or bool(part.data)
        self._send_parts()

    def _send_parts(self) -> None:
        """Hand over the complete parts, once the provider wants one of them back."""
        if self._has_data and self._unsent:
            issuer = issuer_of(self._address, self._model, self._transformations)
            parts, self._unsent = self._unsent, {}
            self._joiner.add_chunk(ProviderParts(issuer, parts))

    def _apply_end(self, event: Mapping[str, Any]) -> None:
        self._usage.add(event.get("usage") or {})
        self._transformations = event.get("input_transformations") or self._transformations
        reason = event["delta"].get("stop_reason")
        if reason is not None:
            self._stop_reason = _STOP_REASONS.get(reason, StopReason.END_TURN)

    def _apply_error(self, error: Mapping[str, Any]) -> None:
        status = _STATUSES.get(error.get("type", ""))
        self.failure = failure_of_error(error if status is None else {**error, "code": status})

    def _finish(self) -> None:
        reason = self._stop_reason
        if reason is None:
            self._fail(FailureKind.STREAM_INTERRUPTED, "the model's answer has no stop reason")
            return
        if reason is StopReason.END_TURN and self._call_ids:
            reason = StopReason.TOOL_USE
        self._joiner.add_chunk(ModelFinished(reason, self._usage.total()))
        self.complete = True


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {}
