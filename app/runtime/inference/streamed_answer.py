"""The model's answer in a step so far, over all attempts, and its events.

Emitted text stays valid until `stream_reset`; calls belong to one attempt.
"""

import json
from dataclasses import dataclass, field
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
from app.domain.json_values import storable, storable_text
from app.domain.runs.runs import Usage
from app.domain.threads.messages import ToolCall
from app.runtime.active_run import ActiveRun
from app.runtime.ports import (
    CallArguments,
    CallOpened,
    ModelChunk,
    ModelFinished,
    ReasoningChunk,
    StopReason,
    TextChunk,
    TokenUsage,
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
    """Emits each part as it comes. `initial_text` is text that an earlier activation emitted."""

    def __init__(self, run: ActiveRun, initial_text: str = "") -> None:
        self._run = run
        self._text: list[str] = [initial_text]
        self._calls: dict[CallId, _OpenCall] = {}
        self._usage: TokenUsage | None = None
        self.calls: list[ToolCall] = []
        """The complete calls, emitted as `tool_call_ready`."""
        self.stop_reason: StopReason | None = None
        """Why the last attempt stopped; None while it streams or if it broke off."""
        self.has_begun = False
        """Whether the last attempt has streamed anything."""
        self.oversized: list[str] = []
        """Names of calls whose arguments are too large."""

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of all attempts, as far as the provider reported them."""
        return self._usage

    def begin_attempt(self) -> None:
        self._calls.clear()
        self.stop_reason = None
        self.has_begun = False

    def add(self, chunk: ModelChunk) -> None:
        self.has_begun = True
        match chunk:
            case TextChunk(text):
                self._text.append(text)
                self._run.emit(TextDelta(text))
            case ReasoningChunk(text):
                self._run.emit(ReasoningDelta(text))
            case CallOpened(call_id, name):
                call = _OpenCall(CallId(storable_text(call_id)), storable_text(name))
                self._calls[call_id] = call
                self._run.emit(ToolCallStart(call.id, call.name))
            case CallArguments(call_id, delta):
                call = self._calls[call_id]
                call.arguments.append(delta)
                self._run.emit(ToolCallDelta(call.id, delta))
            case ModelFinished(stop_reason, usage):
                self.stop_reason = stop_reason
                self._count(usage)

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

    def _count(self, usage: TokenUsage | None) -> None:
        """Add reported tokens to the run's usage, even if the answer fails later."""
        if usage is None:
            return
        self._usage = usage if self._usage is None else add_usage(self._usage, usage)
        model = self._run.agent.model.name
        read, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
        telemetry.tokens.labels(model, "input").inc(read)
        telemetry.tokens.labels(model, "output").inc(written)
        self._run.usage += Usage(read, written)


def add_usage(first: TokenUsage, second: TokenUsage) -> TokenUsage:
    """The sum of each count; a count that neither reports stays None."""
    counts = {
        name: None if a is None and b is None else (a or 0) + (b or 0)
        for name in TokenUsage.__dataclass_fields__
        for a, b in [(getattr(first, name), getattr(second, name))]
    }
    return TokenUsage(**counts)


def usage_json(usage: TokenUsage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    fields = TokenUsage.__dataclass_fields__
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
        value = storable(json.loads(arguments))
        # Python parses NaN, and reads too large numbers as infinite; neither is JSON.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return _NOT_JSON
    return value
