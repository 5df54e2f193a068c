"""Parses a stream of the Gemini API: bytes in, model chunks out. No I/O, no clock."""

from collections.abc import Callable, Mapping
from typing import Any

from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind
from app.domain.json_values import compact
from app.domain.threads.provider_data import PartKind, ProviderPart
from app.llm.failures import failure_of_error
from app.llm.google.citations import citations_of
from app.llm.google.provider_data import SIGNATURE, issuer_of, part_of
from app.llm.google.usage import GoogleUsage
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

_FILTERED = StopReason.CONTENT_FILTER
_STOP_REASONS = {
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "CONTINUATION": StopReason.MAX_TOKENS,
    "SAFETY": _FILTERED,
    "RECITATION": _FILTERED,
    "BLOCKLIST": _FILTERED,
    "PROHIBITED_CONTENT": _FILTERED,
    "SPII": _FILTERED,
    "IMAGE_SAFETY": _FILTERED,
    "IMAGE_PROHIBITED_CONTENT": _FILTERED,
    "MODEL_ARMOR": _FILTERED,
}
_ERRORS = frozenset({"LANGUAGE", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "NO_IMAGE"})
"""The model has stopped without a usable answer."""
_OWN_PARTS = (
    *("inlineData", "executableCode", "codeExecutionResult"),
    *("toolCall", "toolResponse"),
)
"""Parts that only Google understands. It wants them back."""


class _Run:
    """Neighbouring pieces of a text, or of a thought."""

    def __init__(self, kind: PartKind) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.signature: str | None = None


class GoogleStream(AnswerParser):
    """Parses one answer."""

    def __init__(self, new_call_id: Callable[[], str], address: str, model: str) -> None:
        super().__init__()
        self._new_call_id = new_call_id
        self._issuer = issuer_of(address, model)
        self._run: _Run | None = None
        self._texts: list[str] = []
        """The complete runs of text."""
        self._place = 0
        """Of the next part."""
        self._unsent: dict[int, ProviderPart] = {}
        self._has_data = False
        self._call_ids: set[str] = set()
        self._grounding: Mapping[str, Any] | None = None
        self._stop_reason: StopReason | None = None
        self._usage = GoogleUsage()
        self._is_usage_sent = False

    @property
    def _has_stopped(self) -> bool:
        return self._stop_reason is not None

    def _is_last_line(self, text: str) -> bool:
        """Google only closes the stream. Servers between may say that an answer has ended."""
        return text == "[DONE]" and self._has_stopped

    def _apply_event(self, event: dict[str, Any]) -> None:
        if (error := event.get("error")) is not None:
            self.failure = failure_of_error(error)
            return
        if candidates := event.get("candidates"):
            self._apply_candidate(candidates[0])
        elif (event.get("promptFeedback") or {}).get("blockReason"):
            self._stop_reason = _FILTERED
        if (usage := event.get("usageMetadata")) is not None:
            self._usage.add(usage)
            if not self._is_usage_sent and self._usage.has_prompt:
                self._is_usage_sent = True
                if (so_far := self._usage.total()) is not None:
                    self._joiner.add_chunk(UsageSoFar(so_far))

    def _apply_candidate(self, candidate: Mapping[str, Any]) -> None:
        if (content := candidate.get("content")) is not None:
            for part in content.get("parts") or ():
                self._apply_part(part)
        if (grounding := candidate.get("groundingMetadata")) is not None:
            self._grounding = grounding
        reason = candidate.get("finishReason")
        if reason is not None and self._stop_reason is not _FILTERED:
            self._apply_stop(reason, candidate.get("finishMessage"))

    def _apply_stop(self, reason: str, message: str | None) -> None:
        if reason in _ERRORS:
            detail = f"the model stopped with an error: {message or reason}"
            self._fail(FailureKind.PROVIDER, detail)
        elif reason != "FINISH_REASON_UNSPECIFIED":
            self._stop_reason = _STOP_REASONS.get(reason, StopReason.END_TURN)

    def _apply_part(self, part: Mapping[str, Any]) -> None:
        signature = part.get(SIGNATURE) or None
        text = part.get("text")
        if text is not None:
            if text or signature is not None:
                self._add_text(text, signature, is_thought=bool(part.get("thought")))
        elif (call := part.get("functionCall")) is not None:
            self._add_call(call, signature)
        elif any(part.get(name) is not None for name in _OWN_PARTS):
            self._add_own(part)

    def _add_text(self, text: str, signature: str | None, *, is_thought: bool) -> None:
        kind = PartKind.THINKING if is_thought else PartKind.TEXT
        run = self._run
        if run is None or run.kind is not kind:
            self._end_run()
            run = self._run = _Run(kind)
        run.signature = signature or run.signature
        if text:
            run.pieces.append(text)
            self._joiner.add(ReasoningChunk if is_thought else TextChunk, text)

    def _add_call(self, call: Mapping[str, Any], signature: str | None) -> None:
        self._end_run()
        id_ = call.get("id") or ""
        if not id_ or id_ in self._call_ids:
            id_ = self._new_call_id()
        self._call_ids.add(id_)
        call_id = CallId(id_)
        self._joiner.add_chunk(CallOpened(call_id, call["name"]))
        if arguments := call.get("args"):
            self._joiner.add(call_id, compact(arguments))
        self._add_part(part_of(PartKind.CALL, "", signature, call_id))

    def _add_own(self, part: Mapping[str, Any]) -> None:
        tool = part.get("toolCall") or part.get("toolResponse")
        is_step = tool is not None and not _is_replayed(tool)
        # An image that the model drew while it thought isn't its answer.
        if is_step or ("inlineData" in part and part.get("thought")):
            return
        self._end_run()
        self._add_part(ProviderPart(PartKind.OTHER, dict(part)))

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            text = "".join(run.pieces)
            if run.kind is PartKind.TEXT:
                self._texts.append(text)
            self._add_part(part_of(run.kind, text, run.signature))

    def _add_part(self, part: ProviderPart | None) -> None:
        """Hand over the complete parts, once the provider wants one of them back."""
        if part is None:
            return
        self._unsent[self._place] = part
        self._place += 1
        self._has_data = self._has_data or bool(part.data)
        if self._has_data:
            parts, self._unsent = self._unsent, {}
            self._joiner.add_chunk(ProviderParts(self._issuer, parts))

    def _finish(self) -> None:
        reason = self._stop_reason
        assert reason is not None, "the end of the bytes finishes a stopped answer only"
        self._end_run()
        if self._grounding is not None and (cited := citations_of(self._texts, self._grounding)):
            self._joiner.add_chunk(Citations(tuple(cited)))
        if reason is StopReason.END_TURN and self._call_ids:
            reason = StopReason.TOOL_USE
        self._joiner.add_chunk(ModelFinished(reason, self._usage.total()))
        self.complete = True


def _is_replayed(tool: Mapping[str, Any]) -> bool:
    """Whether Google wants the part back. It refuses the steps in which it prepares media."""
    type_ = tool.get("toolType")
    has_content = bool(tool.get("args") or tool.get("response"))
    return type_ != "MEDIA_PROCESSING" and (type_ is not None or has_content)
