"""What a model has said in a step so far, over all attempts at it, and the events that tell of it.

Text that was said stands until it is taken back with `stream_reset`; calls belong to one attempt.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from app import telemetry
from app.domain.events.run_events import (
    ReasoningDelta,
    StreamReset,
    TextDelta,
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
"""Of one call."""
MAX_ARGUMENT_TOKENS = 100_000
"""Brackets, commas and strings: each takes up to half a microsecond to read and to store."""
ARGUMENTS_TOO_LARGE = "arguments too large"


@dataclass(slots=True)
class _OpenCall:
    """A call as it will be stored: what a model calls it may hold what no store can keep."""

    id: CallId
    name: str
    arguments: list[str] = field(default_factory=list)


class StreamedAnswer:
    """Says each part as it comes. `begun_with` is text of an earlier activation, which was said there."""

    def __init__(self, run: ActiveRun, begun_with: str = "") -> None:
        self._run = run
        self._text: list[str] = [begun_with]
        self._calls: dict[CallId, _OpenCall] = {}
        self._usage: TokenUsage | None = None
        self.calls: list[ToolCall] = []
        """Those that were announced."""
        self.stop_reason: StopReason | None = None
        """Why the last attempt stopped; None until it has."""
        self.has_begun = False
        """Whether anything has come of the last attempt."""
        self.oversized: list[str] = []
        """Names of calls whose arguments were too large to be read."""

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of all attempts, as far as the provider has told."""
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
        """The attempt is over: announce its calls. Those whose arguments aren't JSON are taken back for
        that reason, and their names returned. Those whose arguments are too large are taken back, too."""
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
                self._announce(call, arguments)
        self._calls.clear()
        return tuple(malformed)

    @property
    def has_whole_calls(self) -> bool:
        return bool(self._whole_calls())

    def keep_whole_calls(self, reason: str) -> tuple[str, ...]:
        """The attempt broke off: announce the calls that had come whole, take back the others."""
        whole = self._whole_calls()
        kept = [(self._calls.pop(id_), arguments) for id_, arguments in whole.items()]
        dropped = self.drop_calls(reason)
        for call, arguments in kept:
            self._announce(call, arguments)
        return dropped

    def drop_calls(self, reason: str) -> tuple[str, ...]:
        """Take back every call that hasn't been announced; their names."""
        dropped = tuple(self._calls.values())
        self._calls.clear()
        for call in dropped:
            self._run.emit(ToolCallCancel(call.id, call.name, reason))
        return tuple(call.name for call in dropped)

    def start_over(self, reason: str) -> None:
        """Take back all that was said."""
        self._text.clear()
        self._calls.clear()
        self._run.emit(StreamReset(reason))

    def _announce(self, call: _OpenCall, arguments: Any) -> None:
        self.calls.append(ToolCall(call.id, call.name, arguments))
        self._run.emit(ToolCallReady(call.id, call.name, arguments))

    def _whole_calls(self) -> dict[CallId, Any]:
        """Arguments that can't be a part of longer ones. A call without any is whole once another began."""
        whole: dict[CallId, Any] = {}
        for place, (id_, call) in enumerate(self._calls.items(), 1):
            arguments = _parse("".join(call.arguments))
            is_object = isinstance(arguments, dict)
            if is_object or (arguments is None and place < len(self._calls)):
                whole[id_] = arguments
        return whole

    def _count(self, usage: TokenUsage | None) -> None:
        """Tokens are spent once they are told, whatever becomes of the answer."""
        if usage is None:
            return
        self._usage = usage if self._usage is None else add_usage(self._usage, usage)
        model = self._run.agent.model.name
        read, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
        telemetry.tokens.labels(model, "input").inc(read)
        telemetry.tokens.labels(model, "output").inc(written)
        self._run.usage += Usage(read, written)


def add_usage(first: TokenUsage, second: TokenUsage) -> TokenUsage:
    """Count by count; what neither has told stays unknown."""
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
    """The arguments as a storable value; none at all are none."""
    if not arguments.strip():
        return None
    if len(arguments) > MAX_ARGUMENT_CHARACTERS or has_more_tokens(arguments, MAX_ARGUMENT_TOKENS):
        return _TOO_LARGE
    try:
        value = storable(json.loads(arguments))
        # Python reads NaN, and numbers beyond its floats as infinite; neither is JSON.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return _NOT_JSON
    return value
