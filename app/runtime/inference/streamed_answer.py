"""The model's answer in a step so far, over all attempts, and its events.

Emitted text stays valid until `stream_reset`; calls belong to one attempt.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app import telemetry
from app.domain.events.step_events import ReasoningDelta, StreamReset, TextDelta
from app.domain.events.tool_call_events import (
    ToolCallCancel,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStart,
)
from app.domain.ids import CallId
from app.domain.json_tokens import has_more_tokens
from app.domain.json_values import float_as_stored, storable, storable_text, utf8_size
from app.domain.runs.runs import Usage
from app.domain.threads.citations import Citation, bounded, placed
from app.domain.threads.messages import ToolCall
from app.domain.threads.provider_data import ProviderData
from app.domain.usage.billed_requests import UsageKind
from app.runtime.active_run import ActiveRun
from app.runtime.inference.provider_parts import CollectedParts
from app.runtime.ports.models import (
    CallArguments,
    CallOpened,
    Citations,
    ModelChunk,
    ModelFinished,
    ProviderParts,
    ReasoningChunk,
    StopReason,
    TextChunk,
    TokenUsage,
    UsageSoFar,
)

MAX_ARGUMENT_CHARACTERS = 1_000_000
"""For the arguments of one call."""
MAX_ARGUMENT_TOKENS = 100_000
"""Brackets, commas and strings: each takes up to half a microsecond to read and to store."""
ARGUMENTS_TOO_LARGE = "arguments too large"


@dataclass(slots=True)
class _OpenCall:
    """A streamed call, with its id and name made storable."""

    id: CallId
    name: str
    arguments: list[str] = field(default_factory=list)


class StreamedAnswer:
    """Emits each part as it comes. `initial_text` is text that an earlier activation emitted.

    A call of the `answer_tool` isn't a call: its arguments are text.
    """

    def __init__(
        self, run: ActiveRun, initial_text: str = "", answer_tool: str | None = None
    ) -> None:
        self._run = run
        self._text: list[str] = [initial_text]
        self._calls: dict[CallId, _OpenCall] = {}
        self._answer_tool = answer_tool
        self._answer_calls: set[CallId] = set()
        self._usage: TokenUsage | None = None
        self._attempt_usage: TokenUsage | None = None
        self._model = run.agent.model.name
        self._parts = CollectedParts()
        self._citations: list[tuple[int, tuple[Citation, ...]]] = []
        """Of each attempt, with the number of characters before it."""
        self.calls: list[ToolCall] = []
        """The complete calls, emitted as `tool_call_ready`."""
        self.stop_reason: StopReason | None = None
        """Why the last attempt stopped. None while it streams, or if it was interrupted."""
        self.has_begun = False
        """Whether the last attempt has streamed anything."""
        self.first_chunk_at: datetime | None = None
        """When the first attempt that streamed anything did so."""
        self.oversized: list[str] = []
        """Names of calls whose arguments are too large."""
        self._bytes_left = run.max_answer_bytes - utf8_size(initial_text)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of all attempts, as far as the provider reported them."""
        return self._usage

    @property
    def is_full(self) -> bool:
        """Whether more came than the answer may have, over all attempts. The rest was cut off."""
        return self._bytes_left < 0

    @property
    def provider_data(self) -> ProviderData | None:
        """What the provider wants back with the answer, of the parts that are complete."""
        text = self.text
        return self._parts.of_answer(text) if text or self.calls else None

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources that the model has named, with their places in the text."""
        if not any(citations for _, citations in self._citations):
            return ()
        text = self.text
        if len(storable_text(text)) != len(text):
            return ()
        return bounded(
            [
                each
                for before, citations in self._citations
                for each in placed(citations, before, len(text))
            ]
        )

    def begin_attempt(self, model: str) -> None:
        """Begin a request to `model`, which is the provider's name of it."""
        self._model = model
        self._calls.clear()
        before = sum(map(len, self._text))
        self._parts.begin_attempt(before)
        self._citations.append((before, ()))
        self.stop_reason = None
        self.has_begun = False

    def add(self, chunk: ModelChunk) -> None:
        if not self.has_begun and not isinstance(chunk, UsageSoFar):
            self.has_begun = True
            self.first_chunk_at = self.first_chunk_at or self._run.clock.now()
        match chunk:
            case TextChunk(text):
                self._add_text(text)
            case ReasoningChunk(text):
                self._run.emit(ReasoningDelta(self._fitting(text)))
            case CallOpened(call_id, name) if name == self._answer_tool:
                self._open_answer(call_id)
            case CallArguments(call_id, delta) if call_id in self._answer_calls:
                self._add_text(delta)
            case CallOpened(call_id, name):
                call = _OpenCall(CallId(storable_text(call_id)), storable_text(name))
                self._calls[call_id] = call
                self._run.emit(ToolCallStart(call.id, call.name))
            case CallArguments(call_id, delta):
                call, fitting = self._calls[call_id], self._fitting(delta)
                call.arguments.append(fitting)
                self._run.emit(ToolCallDelta(call.id, fitting))
            case ProviderParts():
                self._parts.add(chunk)
            case Citations(citations):
                self._citations[-1] = (self._citations[-1][0], citations)
            case ModelFinished(stop_reason, usage):
                self.stop_reason = stop_reason
                self._attempt_usage = usage or self._attempt_usage
            case UsageSoFar(usage):
                self._attempt_usage = usage

    def _open_answer(self, call_id: CallId) -> None:
        """The call of the answer tool begins: its arguments follow the text."""
        self._answer_calls.add(call_id)
        if any(piece.strip() for piece in self._text):
            self._add_text("\n")

    def _add_text(self, text: str) -> None:
        fitting = self._fitting(text)
        self._text.append(fitting)
        self._run.emit(TextDelta(fitting))

    def _fitting(self, text: str) -> str:
        """The beginning of the text that the answer has room for."""
        left = self._bytes_left
        self._bytes_left -= utf8_size(text)
        if self._bytes_left >= 0:
            return text
        return text.encode(errors="replace")[: max(left, 0)].decode(errors="ignore")

    def stop_at_limit(self) -> None:
        """End a full answer as its length limit does."""
        self.stop_reason = StopReason.MAX_TOKENS

    def complete(self, reason: str) -> tuple[str, ...]:
        """End the attempt: emit its calls as ready. Cancel calls whose arguments aren't JSON, and return
        their names. Cancel calls whose arguments are too large, too."""
        malformed = []
        for call in self._calls.values():
            arguments = _parse("".join(call.arguments))
            if arguments is _TOO_LARGE:
                self.oversized.append(call.name)
                self._run.emit(ToolCallCancel(call.id, call.name, ARGUMENTS_TOO_LARGE))
            elif arguments is _NOT_JSON:
                malformed.append(call.name)
                self._run.emit(ToolCallCancel(call.id, call.name, reason))
            else:
                self._add_ready(call, arguments)
        self._calls.clear()
        return tuple(malformed)

    @property
    def has_complete_calls(self) -> bool:
        return bool(self._complete_calls())

    def keep_complete_calls(self, reason: str) -> tuple[str, ...]:
        """End an interrupted attempt: emit its complete calls as ready, and cancel the others."""
        complete = self._complete_calls()
        kept = [(self._calls.pop(id_), arguments) for id_, arguments in complete.items()]
        dropped = self.drop_calls(reason)
        for call, arguments in kept:
            self._add_ready(call, arguments)
        return dropped

    def drop_calls(self, reason: str) -> tuple[str, ...]:
        """Cancel every call that isn't ready, and return their names."""
        dropped = tuple(self._calls.values())
        self._calls.clear()
        for call in dropped:
            self._run.emit(ToolCallCancel(call.id, call.name, reason))
        return tuple(call.name for call in dropped)

    def start_over(self, reason: str) -> None:
        """Discard the answer, and emit `stream_reset`."""
        self._text.clear()
        self._calls.clear()
        self._parts.clear()
        self._citations.clear()
        self._run.emit(StreamReset(reason))

    def _add_ready(self, call: _OpenCall, arguments: Any) -> None:
        self.calls.append(ToolCall(call.id, call.name, arguments))
        self._run.emit(ToolCallReady(call.id, call.name, arguments))

    def _complete_calls(self) -> dict[CallId, Any]:
        """The calls whose arguments are complete. A call without arguments is, once the next call began."""
        complete: dict[CallId, Any] = {}
        for number, (id_, call) in enumerate(self._calls.items(), 1):
            arguments = _parse("".join(call.arguments))
            is_object = isinstance(arguments, dict)
            if is_object or (arguments is None and number < len(self._calls)):
                complete[id_] = arguments
        return complete

    def end_attempt(self) -> None:
        """Add the reported tokens to the run's usage, also if the attempt failed or was interrupted."""
        usage, self._attempt_usage = self._attempt_usage, None
        if usage is None:
            return
        self._usage = usage if self._usage is None else add_usage(self._usage, usage)
        model = self._run.agent.model.name
        read, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
        telemetry.tokens.labels(model, "input").inc(read)
        telemetry.tokens.labels(model, "output").inc(written)
        self._run.usage += Usage(read, written)
        self._run.bill(usage, self._model, UsageKind.INFERENCE)


def add_usage(first: TokenUsage, second: TokenUsage) -> TokenUsage:
    """The sum of each count; a count that neither reports stays None."""
    counts = {
        name: None if a is None and b is None else (a or 0) + (b or 0)
        for name in TokenUsage.__struct_fields__
        for a, b in [(getattr(first, name), getattr(second, name))]
    }
    return TokenUsage(**counts)


def usage_json(usage: TokenUsage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    fields = TokenUsage.__struct_fields__
    return {name: count for name in fields if (count := getattr(usage, name)) is not None}


_NOT_JSON = object()
_TOO_LARGE = object()


def _parse(arguments: str) -> Any:
    """The arguments as a storable value, or None if there are none."""
    if not arguments.strip():
        return None
    if len(arguments) > MAX_ARGUMENT_CHARACTERS or has_more_tokens(arguments, MAX_ARGUMENT_TOKENS):
        return _TOO_LARGE
    try:
        value = storable(json.loads(arguments, parse_float=float_as_stored))
        # Python parses NaN, and reads too large numbers as infinite; neither is JSON.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return _NOT_JSON
    return value
