"""One inference: ask the model, say what it streams, and return what it has said."""

import json
from dataclasses import dataclass, field
from typing import Any

from app import telemetry
from app.domain.errors import InferenceFailed
from app.domain.events import (
    InferenceComplete,
    ReasoningDelta,
    TextDelta,
    ToolCallCancel,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStart,
)
from app.domain.ids import CallId
from app.domain.json_values import storable, storable_text
from app.domain.messages import ToolCall
from app.domain.runs import Usage
from app.runtime.context import ActiveRun
from app.runtime.phases import NOTHING_ASKED, Asked
from app.runtime.ports import (
    CallArguments,
    CallOpened,
    Finished,
    ModelChunk,
    ReasoningChunk,
    StopReason,
    TextChunk,
    TokenUsage,
)
from app.runtime.request import request_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete answer. `malformed` names calls whose arguments weren't JSON; they are left out."""

    text: str
    calls: tuple[ToolCall, ...]
    malformed: tuple[str, ...]
    stop_reason: StopReason


@dataclass(slots=True)
class _OpenCall:
    """A call as it will be stored: what a model calls it may hold what no store can keep."""

    id: CallId
    name: str
    arguments: list[str] = field(default_factory=list)


async def infer(run: ActiveRun, asked: Asked = NOTHING_ASKED) -> Reply:
    """Stream one answer. Its partial text is said already when this is interrupted or fails."""
    agent = run.agent
    request = request_for(run, asked, agent.spec.options)
    began = run.clock.now()
    collected = _Collected(run)
    async with run.interruption.interruptible(), agent.model.stream(request) as stream:
        async for chunks in stream:
            for chunk in chunks:
                collected.add(chunk)
            await run.events.room()
    reply, usage = collected.finish()
    seconds = (run.clock.now() - began).total_seconds()
    telemetry.inference_seconds.labels(agent.model.name).observe(seconds)
    run.usage += _counted(usage, agent.model.name)
    run.say(
        InferenceComplete(
            model=agent.model.name, duration_ms=round(seconds * 1000), usage=_usage_json(usage)
        )
    )
    return reply


class _Collected:
    """What has arrived so far; says each part as it comes."""

    def __init__(self, run: ActiveRun) -> None:
        self._run = run
        self._text: list[str] = []
        self._calls: dict[CallId, _OpenCall] = {}
        self._finished: Finished | None = None

    def add(self, chunk: ModelChunk) -> None:
        match chunk:
            case TextChunk(text):
                self._text.append(text)
                self._run.say(TextDelta(text))
            case ReasoningChunk(text):
                self._run.say(ReasoningDelta(text))
            case CallOpened(call_id, name):
                call = _OpenCall(CallId(storable_text(call_id)), storable_text(name))
                self._calls[call_id] = call
                self._run.say(ToolCallStart(call.id, call.name))
            case CallArguments(call_id, delta):
                call = self._calls[call_id]
                call.arguments.append(delta)
                self._run.say(ToolCallDelta(call.id, delta))
            case Finished():
                self._finished = chunk

    def finish(self) -> tuple[Reply, TokenUsage | None]:
        if self._finished is None:
            raise InferenceFailed(
                "stream_interrupted",
                "The model's answer ended before it was finished.",
                retryable=True,
            )
        calls: list[ToolCall] = []
        malformed: list[str] = []
        for call in self._calls.values():
            arguments = _parse("".join(call.arguments))
            if arguments is _NOT_JSON:
                malformed.append(call.name)
                self._run.say(ToolCallCancel(call.id, call.name, "malformed arguments"))
            else:
                calls.append(ToolCall(call.id, call.name, arguments))
                self._run.say(ToolCallReady(call.id, call.name, arguments))
        reply = Reply(
            text="".join(self._text),
            calls=tuple(calls),
            malformed=tuple(malformed),
            stop_reason=self._finished.stop_reason,
        )
        return reply, self._finished.usage


_NOT_JSON = object()


def _parse(arguments: str) -> Any:
    """The arguments as a storable value; none at all are none."""
    if not arguments.strip():
        return None
    try:
        value = storable(json.loads(arguments))
        # Python reads NaN, and numbers beyond its floats as infinite; neither is JSON.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return _NOT_JSON
    return value


def _counted(usage: TokenUsage | None, model: str) -> Usage:
    read = (usage and usage.prompt_tokens) or 0
    written = (usage and usage.completion_tokens) or 0
    telemetry.tokens.labels(model, "input").inc(read)
    telemetry.tokens.labels(model, "output").inc(written)
    return Usage(read, written)


def _usage_json(usage: TokenUsage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    fields = TokenUsage.__dataclass_fields__
    return {name: count for name in fields if (count := getattr(usage, name)) is not None}
