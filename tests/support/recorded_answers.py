"""Recorded answers of providers whose reasoning has to go back, as their documents describe the streams.

The first answer of each wire thinks, writes a text and calls `look`; the second one writes a text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

THOUGHT = "The key might be in the \u201cattic\u201d."
TEXT = "I look there."
ARGUMENTS = {"place": "attic", "loud": False}
SIGNATURE = "EqQBCkYIBxgCKkD/9+aZ0Lq=="
ENCRYPTED = "gAAAAABn\u002f+Zt=="
REDACTED = "EmwKAhgBEgy3va3pzix/LafPsn4a"

Extract = Callable[[Any], Any]
"""What a request says about the first answer."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One provider's wire: how its model is configured, its two answers, and the golden second request."""

    name: str
    provider: str
    model: str
    first: bytes
    second: bytes
    answer_in: Extract
    golden: Any
    base_path: str = ""


def data(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def named(*events: dict[str, Any]) -> bytes:
    """Events with their names, as Anthropic and OpenAI Responses send them."""
    return b"".join(f"event: {event['type']}\n".encode() + data(event) for event in events)


# --- Anthropic ------------------------------------------------------------------------------------


def anthropic_block(
    index: int, block: dict[str, Any], *deltas: dict[str, Any]
) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def anthropic(*blocks: list[dict[str, Any]], stop: str) -> bytes:
    message: dict[str, Any] = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    return named(
        {"type": "message_start", "message": message},
        *(event for block in blocks for event in block),
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 20},
        },
        {"type": "message_stop"},
    )


def thinking(index: int, text: str = THOUGHT, signature: str = SIGNATURE) -> list[dict[str, Any]]:
    half = len(text) // 2
    return anthropic_block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": text[:half]},
        {"type": "thinking_delta", "thinking": text[half:]},
        {"type": "signature_delta", "signature": signature},
    )


def anthropic_text(index: int, text: str = TEXT) -> list[dict[str, Any]]:
    return anthropic_block(
        index,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": text[:3]},
        {"type": "text_delta", "text": text[3:]},
    )


def anthropic_call(index: int) -> list[dict[str, Any]]:
    arguments = json.dumps(ARGUMENTS)
    return anthropic_block(
        index,
        {"type": "tool_use", "id": "toolu_01", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": arguments[:5]},
        {"type": "input_json_delta", "partial_json": arguments[5:]},
    )


ANTHROPIC = Wire(
    "anthropic",
    "anthropic",
    "claude-sonnet-5-5",
    anthropic(
        thinking(0),
        anthropic_block(1, {"type": "redacted_thinking", "data": REDACTED}),
        anthropic_text(2),
        anthropic_call(3),
        stop="tool_use",
    ),
    anthropic(anthropic_text(0, "It is here."), stop="end_turn"),
    lambda request: request["messages"][1]["content"],
    [
        {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE},
        {"type": "redacted_thinking", "data": REDACTED},
        {"type": "text", "text": TEXT},
        {"type": "tool_use", "id": "toolu_01", "name": "look", "input": ARGUMENTS},
    ],
)


# --- Google ---------------------------------------------------------------------------------------


def google(*pieces: Sequence[dict[str, Any]]) -> bytes:
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 7, "totalTokenCount": 16}
    events: list[dict[str, Any]] = [
        {"content": {"role": "model", "parts": list(parts)}} for parts in pieces
    ]
    events[-1]["finishReason"] = "STOP"
    return data(
        *(
            {"candidates": [each], "usageMetadata": usage, "modelVersion": "gemini-3-pro"}
            for each in events
        )
    )


_GOOGLE_SIGNATURE = "c2lnbmVkIGJ5IEdvb2dsZQ=="

GOOGLE = Wire(
    "google",
    "google",
    "gemini-3-pro-preview",
    google(
        [{"text": THOUGHT, "thought": True}],
        [{"text": TEXT}],
        [
            {
                "functionCall": {"id": "call_g", "name": "look", "args": ARGUMENTS},
                "thoughtSignature": _GOOGLE_SIGNATURE,
            }
        ],
    ),
    google([{"text": "It is here."}]),
    lambda request: request["contents"][1]["parts"],
    [
        {"text": TEXT},
        {
            "functionCall": {"id": "call_g", "name": "look", "args": ARGUMENTS},
            "thoughtSignature": _GOOGLE_SIGNATURE,
        },
    ],
)


# --- OpenAI Responses -----------------------------------------------------------------------------


def _reasoning_item(*summaries: str) -> list[dict[str, Any]]:
    item = {"id": "rs_1", "type": "reasoning", "summary": []}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item}
    ]
    for index, text in enumerate(summaries):
        at = {"item_id": "rs_1", "output_index": 0, "summary_index": index}
        part = {"type": "summary_text", "text": text}
        events += [
            {
                "type": "response.reasoning_summary_part.added",
                **at,
                "part": {"type": "summary_text", "text": ""},
            },
            {"type": "response.reasoning_summary_text.delta", **at, "delta": text},
            {"type": "response.reasoning_summary_text.done", **at, "text": text},
            {"type": "response.reasoning_summary_part.done", **at, "part": part},
        ]
    whole = {
        **item,
        "summary": [{"type": "summary_text", "text": text} for text in summaries],
        "encrypted_content": ENCRYPTED,
    }
    return [*events, {"type": "response.output_item.done", "output_index": 0, "item": whole}]


def _text_item(index: int, id_: str, text: str) -> list[dict[str, Any]]:
    item = {"id": id_, "type": "message", "role": "assistant", "status": "in_progress"}
    at = {"item_id": id_, "output_index": index, "content_index": 0}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "content": []},
        },
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": text, "logprobs": []},
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**item, "status": "completed", "content": [part]},
        },
    ]


def _call_item(index: int) -> list[dict[str, Any]]:
    arguments = json.dumps(ARGUMENTS)
    item = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_r",
        "name": "look",
        "status": "in_progress",
    }
    at = {"item_id": "fc_1", "output_index": index}
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", **at, "delta": arguments},
        {
            "type": "response.function_call_arguments.done",
            **at,
            "arguments": arguments,
            "name": "look",
        },
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**item, "arguments": arguments, "status": "completed"},
        },
    ]


def responses(*items: list[dict[str, Any]]) -> bytes:
    head = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.4",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 16,
    }
    events = [
        {"type": "response.created", "response": {**head, "status": "in_progress"}},
        *(event for item in items for event in item),
        {
            "type": "response.completed",
            "response": {**head, "status": "completed", "usage": usage},
        },
    ]
    return named(*({**event, "sequence_number": n} for n, event in enumerate(events)))


RESPONSES = Wire(
    "openai-responses",
    "openai-responses",
    "gpt-5.4",
    responses(_reasoning_item("**Where**", THOUGHT), _text_item(1, "msg_1", TEXT), _call_item(2)),
    responses(_text_item(0, "msg_2", "It is here.")),
    lambda request: request["input"][1:4],
    [
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [
                {"type": "summary_text", "text": "**Where**"},
                {"type": "summary_text", "text": THOUGHT},
            ],
            "encrypted_content": ENCRYPTED,
        },
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "call_id": "call_r",
            "name": "look",
            "arguments": json.dumps(ARGUMENTS, separators=(",", ":"), sort_keys=True),
        },
    ],
    "/v1",
)


# --- OpenAI-compatible servers --------------------------------------------------------------------


def chat(*deltas: dict[str, Any], finish: str) -> bytes:
    events = [
        {"id": "c1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
        for delta in deltas
    ]
    last = {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return data(*events, last) + b"data: [DONE]\n\n"


def _chat_call(**more: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": json.dumps(ARGUMENTS)}
    return {
        "tool_calls": [
            {"index": 0, "id": "call_c", "type": "function", "function": function, **more}
        ]
    }


_CHAT_TEXT = chat({"content": "It is here."}, finish="stop")


def _assistant(request: Any) -> Any:
    return next(message for message in request["messages"] if message["role"] == "assistant")


def _sent_call(**more: Any) -> dict[str, Any]:
    arguments = json.dumps(ARGUMENTS, separators=(",", ":"), sort_keys=True)
    function = {"name": "look", "arguments": arguments}
    return {"id": "call_c", "type": "function", "function": function, **more}


_EXTRA = {"google": {"thought_signature": SIGNATURE}}
_DETAILS = [
    {
        "type": "reasoning.text",
        "text": THOUGHT,
        "format": "anthropic-claude-v1",
        "index": 0,
        "signature": SIGNATURE,
    },
    {
        "type": "reasoning.encrypted",
        "data": ENCRYPTED,
        "id": "rs_9",
        "format": "openai-responses-v1",
        "index": 1,
    },
]

DEEPSEEK = Wire(
    "deepseek",
    "openai",
    "deepseek-v4",
    chat(
        {"role": "assistant", "content": None, "reasoning_content": THOUGHT[:6]},
        {"reasoning_content": THOUGHT[6:]},
        {"content": TEXT},
        _chat_call(),
        finish="tool_calls",
    ),
    _CHAT_TEXT,
    _assistant,
    {
        "role": "assistant",
        "content": TEXT,
        "tool_calls": [_sent_call()],
        "reasoning_content": THOUGHT,
    },
    "/v1",
)
VLLM = Wire(
    "vllm",
    "openai",
    "kimi-k3",
    chat({"reasoning": THOUGHT}, {"content": TEXT}, _chat_call(), finish="tool_calls"),
    _CHAT_TEXT,
    _assistant,
    {"role": "assistant", "content": TEXT, "tool_calls": [_sent_call()], "reasoning": THOUGHT},
    "/v1",
)
OPENROUTER = Wire(
    "openrouter",
    "openai",
    "anthropic/claude",
    chat(
        {"reasoning_details": [{**_DETAILS[0], "text": THOUGHT[:9], "signature": None}]},
        {"reasoning_details": [{**_DETAILS[0], "text": THOUGHT[9:], "signature": None}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": SIGNATURE}]},
        {"reasoning_details": [_DETAILS[1]]},
        {"content": TEXT},
        _chat_call(),
        finish="tool_calls",
    ),
    _CHAT_TEXT,
    _assistant,
    {
        "role": "assistant",
        "content": TEXT,
        "tool_calls": [_sent_call()],
        "reasoning_details": _DETAILS,
    },
    "/v1",
)
GEMINI_CHAT = Wire(
    "gemini-chat",
    "openai",
    "gemini-3-pro",
    chat({"content": TEXT}, _chat_call(extra_content=_EXTRA), finish="tool_calls"),
    _CHAT_TEXT,
    _assistant,
    {"role": "assistant", "content": TEXT, "tool_calls": [_sent_call(extra_content=_EXTRA)]},
    "/v1",
)

WIRES: Mapping[str, Wire] = {
    wire.name: wire
    for wire in (ANTHROPIC, GOOGLE, RESPONSES, DEEPSEEK, VLLM, OPENROUTER, GEMINI_CHAT)
}
