"""A fake provider's answer in the events of a wire: OpenAI-compatible, Anthropic's or Google's."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.fake_answers import WORD, Answer


@dataclass(frozen=True, slots=True)
class Wire:
    """The frames before the words, of one word, and after them, and the error frames."""

    opening: tuple[bytes, ...]
    word: bytes
    closing: tuple[bytes, ...]
    error: bytes
    malformed: bytes


def openai_wire(request: dict[str, Any], answer: Answer) -> Wire:
    base = {
        "id": f"chatcmpl-{answer.id}",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": request["model"],
    }

    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data({**base, "choices": [choice]})

    usage = {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": len(answer.reasoning) or None},
    }
    stop = answer.stop or ("tool_calls" if answer.calls else "stop")
    return Wire(
        opening=(
            event({"role": "assistant", "content": ""}),
            *(event({"reasoning_content": piece}) for piece in answer.reasoning),
        ),
        word=event({"content": WORD}),
        closing=(
            *_openai_calls(event, answer),
            event({}, stop),
            _data({**base, "choices": [], "usage": usage}),
            b"data: [DONE]\n\n",
        ),
        error=_data({"error": {"message": "it broke", "type": "server_error", "code": None}}),
        malformed=b'data: {"choices": [{"delta": {"content": "\n\n',
    )


def _openai_calls(event: Callable[[dict[str, Any]], bytes], answer: Answer) -> Iterator[bytes]:
    for index, id_, name, pieces in _calls(answer):
        head = {"id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
        yield event({"tool_calls": [{"index": index, **head}]})
        for piece in pieces:
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def anthropic_wire(request: dict[str, Any], answer: Answer) -> Wire:
    # Anthropic's input tokens are those besides the cache; other providers' prompt tokens include it.
    started = {
        "input_tokens": max(answer.prompt_tokens - 4, 0),
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 1,
    }
    message = {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**started, "output_tokens": 1},
    }
    stop = {"": "tool_use" if answer.calls else "end_turn", "length": "max_tokens"}
    text_at = 1 if answer.reasoning else 0
    opening = [_event("message_start", message=message)]
    if answer.reasoning:
        thinking = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in answer.reasoning]
        opening += _block(0, thinking, deltas)
    if not answer.calls:
        opening += _block(text_at, {"type": "text", "text": ""}, [])[:1]
    closing = [] if answer.calls else [_event("content_block_stop", index=text_at)]
    for index, id_, name, pieces in _calls(answer):
        call = {"type": "tool_use", "id": id_, "name": name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        closing += _block(text_at + index, call, deltas)
    delta = {"stop_reason": stop.get(answer.stop, answer.stop), "stop_sequence": None}
    usage = {"output_tokens": answer.completion_tokens}
    closing += [_event("message_delta", delta=delta, usage=usage), _event("message_stop")]
    text = {"type": "text_delta", "text": WORD}
    return Wire(
        opening=tuple(opening),
        word=_event("content_block_delta", index=text_at, delta=text),
        closing=tuple(closing),
        error=_event("error", error={"type": "api_error", "message": "it broke"}),
        malformed=b'event: content_block_delta\ndata: {"type": "content_block\n\n',
    )


def google_wire(request: dict[str, Any], answer: Answer) -> Wire:
    def event(*parts: dict[str, Any], **more: Any) -> bytes:
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
        return _data({"candidates": [candidate], "responseId": answer.id})

    usage = {
        "promptTokenCount": answer.prompt_tokens,
        "candidatesTokenCount": answer.completion_tokens,
        "totalTokenCount": answer.prompt_tokens + answer.completion_tokens,
        "cachedContentTokenCount": 3,
    }
    stop = {"": "STOP", "length": "MAX_TOKENS"}
    calls = [
        event({"functionCall": {"name": name, "args": json.loads("".join(pieces))}})
        for _, _, name, pieces in _calls(answer)
    ]
    return Wire(
        opening=tuple(event({"text": piece, "thought": True}) for piece in answer.reasoning),
        word=event({"text": WORD}),
        closing=(
            *calls,
            event({"text": ""}, finishReason=stop.get(answer.stop, answer.stop)),
            _data({"usageMetadata": usage, "responseId": answer.id}),
        ),
        error=_data({"error": {"code": 500, "message": "it broke", "status": "INTERNAL"}}),
        malformed=b'data: {"candidates": [{"content\n\n',
    )


def _block(index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> list[bytes]:
    return [
        _event("content_block_start", index=index, content_block=block),
        *(_event("content_block_delta", index=index, delta=delta) for delta in deltas),
        _event("content_block_stop", index=index),
    ]


def _calls(answer: Answer) -> Iterator[tuple[int, str, str, tuple[str, str]]]:
    """Index, id, name and the arguments in two pieces."""
    if answer.calls is None:
        return
    arguments = answer.calls.arguments
    half = len(arguments) // 2
    for index in range(answer.calls.times):
        id_ = f"call_{answer.id}_{index}"
        yield index, id_, answer.calls.tool, (arguments[:half], arguments[half:])


def _event(type_: str, **body: Any) -> bytes:
    return f"event: {type_}\n".encode() + _data({"type": type_, **body})


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"
