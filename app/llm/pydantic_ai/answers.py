"""Converts the answers and errors of pydantic-ai to the types of the runtime."""

from collections.abc import Sequence
from typing import Any

import httpx2
from pydantic_ai import exceptions as sdk
from pydantic_ai.messages import (
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import StreamedResponse

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.domain.json_values import compact
from app.llm.failures import kind_of_status, kind_of_text, message_of
from app.llm.openai.tool_call_assembly import ToolCallAssembly
from app.runtime.ports.models import ModelChunk, ReasoningChunk, StopReason, TextChunk, TokenUsage

_STOP_REASONS = {
    "stop": StopReason.END_TURN,
    "length": StopReason.MAX_TOKENS,
    "tool_call": StopReason.TOOL_USE,
    "content_filter": StopReason.CONTENT_FILTER,
}

# The first match counts, so subclasses come first.
_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (sdk.ModelRateLimitError, FailureKind.RATE_LIMITED),
    (sdk.ModelQuotaExceededError, FailureKind.UNAUTHORIZED),
    (sdk.ModelUnavailableError, FailureKind.OVERLOADED),
    (sdk.ModelTimeoutError, FailureKind.TIMEOUT),
    (httpx2.TimeoutException, FailureKind.TIMEOUT),
    (sdk.ModelRequestTimeout, FailureKind.TIMEOUT),
    (sdk.ModelAuthenticationError, FailureKind.UNAUTHORIZED),
    (sdk.ModelNotFoundError, FailureKind.MODEL_NOT_FOUND),
    (sdk.ModelContextWindowExceededError, FailureKind.CONTEXT_OVERFLOW),
    (sdk.ContentFilterError, FailureKind.CONTENT_FILTERED),
)


def chunks_of(event: ModelResponseStreamEvent, calls: ToolCallAssembly) -> Sequence[ModelChunk]:
    """The chunks of an SDK event. Most events only frame others and have none.

    Calls of tools that the provider runs itself have none, either.
    """
    match event:
        case (
            PartStartEvent(part=TextPart(content=str(text)))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=str(text)))
        ):
            return [TextChunk(text)] if text else []
        case (
            PartStartEvent(part=ThinkingPart(content=str(text)))
            | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text)))
        ):
            return [ReasoningChunk(text)] if text else []
        case PartStartEvent(part=ToolCallPart() as call):
            return [
                *calls.add(
                    event.index,
                    id=call.tool_call_id,
                    name=call.tool_name,
                    arguments=_text(call.args),
                )
            ]
        case PartDeltaEvent(delta=ToolCallPartDelta() as delta) if calls.has_call_at(event.index):
            return [
                *calls.add(
                    event.index,
                    id="",
                    name=delta.tool_name_delta or "",
                    arguments=_text(delta.args_delta),
                )
            ]
        case _:
            return []


def _text(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return compact(arguments) if arguments else ""


def stop_reason(response: StreamedResponse, calls: ToolCallAssembly) -> StopReason:
    """Why a finished stream has stopped. Without a reason from the provider it was cut off."""
    reason = response.finish_reason
    finish_reason = (response.provider_details or {}).get("finish_reason")
    if finish_reason is None and reason in (None, "stop"):
        raise failed(
            FailureKind.STREAM_INTERRUPTED, "the model's stream ended before its answer did"
        )
    if reason == "error":
        raise failed(FailureKind.PROVIDER, "the model stopped with an error")
    if finish_reason == "stop_sequence":
        return StopReason.STOP_SEQUENCE
    if reason in (None, "stop") and calls.any_opened:
        return StopReason.TOOL_USE
    return _STOP_REASONS[reason or "stop"]


def usage(response: StreamedResponse) -> TokenUsage | None:
    """The token usage of a finished stream, if its provider has counted it."""
    counted = response.usage
    if counted.unmeasured_requests:
        return None
    # The SDK counts from zero, so a missing detail looks like zero.
    return TokenUsage(
        prompt_tokens=counted.input_tokens,
        completion_tokens=counted.output_tokens,
        total_tokens=counted.total_tokens,
        cache_read_tokens=counted.cache_read_tokens or None,
        cache_creation_tokens=counted.cache_write_tokens or None,
        thinking_tokens=counted.details.get("reasoning_tokens") or None,
    )


def failure(error: Exception, begun: bool) -> InferenceFailed:
    """Convert an error of the SDK. `begun` is True if the answer had begun."""
    retry_after = error.retry_after if isinstance(error, sdk.ModelAPIError) else None
    return failed(_kind(error, begun), _detail(error), retry_after=retry_after)


def _kind(error: Exception, begun: bool) -> FailureKind:
    for type_, kind in _KINDS:
        if isinstance(error, type_):
            return kind
    cut = FailureKind.STREAM_INTERRUPTED if begun else FailureKind.PROVIDER
    match error:
        case sdk.ModelHTTPError(status_code=status):
            return kind_of_status(status, str(error))
        case sdk.ModelRequestRejectedError() | sdk.UserError():
            return kind_of_text(str(error)) or FailureKind.INVALID_REQUEST
        case sdk.ModelConnectionError() | httpx2.HTTPError():
            return cut
        case sdk.ModelAPIError(body=None) if not isinstance(error.__cause__, ValueError):
            return cut
        case _:
            return FailureKind.PROVIDER


def _detail(error: Exception) -> str:
    if isinstance(error, sdk.ModelHTTPError):
        return f"HTTP {error.status_code}: {message_of(error.body)}"
    return str(error) or type(error).__name__
