"""The OpenAI-compatible protocol: request bodies, and how streams are parsed."""

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.ids import CallId, MessageId
from app.domain.threads.messages import (
    Base64Source,
    Block,
    Media,
    Message,
    Role,
    Text,
    Thinking,
    ToolCall,
    UnknownBlock,
    UrlSource,
)
from app.domain.threads.provider_data import PartKind, ProviderPart
from app.llm.http.answer_parser import MAX_LINE_BYTES
from app.llm.openai.request import request_body
from app.llm.openai.stream import OpenAIStream, usage_of
from app.runtime.ports.models import (
    CallArguments,
    CallOpened,
    ModelChunk,
    ModelFinished,
    ModelRequest,
    ProviderParts,
    ReasoningChunk,
    StopReason,
    TextChunk,
    TokenUsage,
)
from tests.support.parsed_answers import failure_in, parsed
from tests.support.transcripts import ADD, asking, assistant, joined, result

DONE = b"data: [DONE]\n\n"


def event(delta: Any = None, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return data({"id": "x", "choices": [choice], **more})


def data(body: Any) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def call(index: int | None, id_: str | None = None, name: str | None = None, args: Any = "") -> Any:
    piece: dict[str, Any] = {"function": {"name": name, "arguments": args}}
    if index is not None:
        piece["index"] = index
    if id_ is not None:
        piece["id"] = id_
    return {"tool_calls": [piece]}


def stream_of() -> OpenAIStream:
    counter = itertools.count()
    return OpenAIStream(lambda: f"made-{next(counter)}")


def read(*pieces: bytes) -> tuple[list[ModelChunk], OpenAIStream]:
    stream = stream_of()
    return joined(parsed(stream, pieces)), stream


def answer(*events: bytes, finish: str = "stop") -> list[ModelChunk]:
    """The chunks of a whole answer, without the `Finished` at its end."""
    chunks, stream = read(b"".join(events) + event(finish=finish) + DONE)
    assert stream.failure is None
    assert isinstance(chunks[-1], ModelFinished)
    return chunks[:-1]


def failure(*pieces: bytes) -> tuple[str, str]:
    return failure_in(stream_of(), pieces)


WHOLE = b"".join(
    [
        b": a comment\r\n\r\n",
        event({"role": "assistant", "content": ""}),
        event({"reasoning": "hm\u2026 "}).replace(b"\n", b"\r\n"),
        event({"content": "Gr\u00fc\u00dfe, \u6f22\u5b57 \U0001f600"}),
        b"event: message\nid: 7\n",
        event({"content": " and\n\nlines"}),
        event(call(0, "call_a", "add", "")),
        event(call(0, args='{"a": ')),
        event(call(1, "call_b", "add", '{"a": 2')),
        event(call(0, args="1}")),
        event(call(1, args="}")),
        event(finish="tool_calls"),
        data({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
        DONE,
    ]
)
WHOLE_CHUNKS = [
    ReasoningChunk("hm\u2026 "),
    TextChunk("Gr\u00fc\u00dfe, \u6f22\u5b57 \U0001f600 and\n\nlines"),
    CallOpened(CallId("call_a"), "add"),
    CallArguments(CallId("call_a"), '{"a": '),
    ProviderParts({}, {0: ProviderPart(PartKind.THINKING, {"field": "reasoning"}, "hm\u2026 ")}),
    CallOpened(CallId("call_b"), "add"),
    CallArguments(CallId("call_b"), '{"a": 2'),
    CallArguments(CallId("call_a"), "1}"),
    CallArguments(CallId("call_b"), "}"),
    ModelFinished(StopReason.TOOL_USE, TokenUsage(prompt_tokens=3, completion_tokens=4)),
]


def test_one_cut_at_any_byte_changes_nothing() -> None:
    for at in range(len(WHOLE) + 1):
        assert read(WHOLE[:at], WHOLE[at:])[0] == WHOLE_CHUNKS


@settings(max_examples=50)
@given(st.lists(st.integers(0, len(WHOLE)), max_size=30).map(sorted))
def test_any_cuts_change_nothing(cuts: list[int]) -> None:
    bounds = [0, *cuts, len(WHOLE)]
    assert read(*(WHOLE[a:b] for a, b in itertools.pairwise(bounds)))[0] == WHOLE_CHUNKS


def test_deltas_of_one_read_are_one_chunk() -> None:
    stream = stream_of()
    together = stream.feed(event({"content": "a"}) + event({"content": "b"}))
    assert together == [TextChunk("ab")]
    assert stream.feed(event({"content": "c"})) == [TextChunk("c")]


def test_reasoning_is_read_under_both_of_its_names_and_once() -> None:
    both = {"reasoning": "a", "reasoning_content": "a"}
    assert answer(event({"reasoning_content": "x"}), event(both)) == [ReasoningChunk("xa")]


def test_content_may_be_a_list_of_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert answer(event({"content": parts})) == [TextChunk("ab")]


def test_a_refusal_is_text() -> None:
    assert answer(event({"content": None, "refusal": "I won't."})) == [TextChunk("I won't.")]


def opened(*events: bytes) -> list[tuple[str, str]]:
    return [(c.id, c.name) for c in answer(*events) if isinstance(c, CallOpened)]


def arguments(*events: bytes) -> dict[str, str]:
    texts: dict[str, str] = {}
    for chunk in answer(*events):
        if isinstance(chunk, CallArguments):
            texts[chunk.id] = texts.get(chunk.id, "") + chunk.args_delta
    return texts


def test_a_call_without_arguments_opens_when_the_answer_ends() -> None:
    assert opened(event(call(0, "call_a", "now"))) == [("call_a", "now")]


def test_a_call_without_an_id_gets_a_stable_one() -> None:
    events = [event(call(0, None, "add", "{")), event(call(0, "call_late", None, "}"))]
    assert opened(*events) == [("made-0", "add")]
    assert arguments(*events) == {"made-0": "{}"}


def test_an_id_after_the_name_belongs_to_the_call() -> None:
    assert opened(event(call(0, None, "add")), event(call(0, "call_a", None, "{}"))) == [
        ("call_a", "add")
    ]


def test_calls_that_share_an_id_are_kept_apart() -> None:
    events = [event(call(0, "same", "add", "{}")), event(call(1, "same", "add", "[]"))]
    assert opened(*events) == [("same", "add"), ("made-0", "add")]
    assert arguments(*events) == {"same": "{}", "made-0": "[]"}


def test_a_name_in_pieces_is_put_together() -> None:
    events = [
        event(call(0, "call_a", "get_")),
        event(call(0, None, "weather")),
        event(call(0, args="{}")),
    ]
    assert opened(*events) == [("call_a", "get_weather")]


def test_a_repeated_name_is_used_once() -> None:
    events = [
        event(call(0, "call_a", "add")),
        event(call(0, "call_a", "add", "{")),
        event(call(0, None, "add", "}")),
    ]
    assert opened(*events) == [("call_a", "add")]
    assert arguments(*events) == {"call_a": "{}"}


def test_calls_without_indices_are_kept_apart_by_their_ids() -> None:
    events = [
        event(call(None, "a", "add", "{")),
        event(call(None, args="}")),
        event(call(None, "b", "add", "[]")),
    ]
    assert arguments(*events) == {"a": "{}", "b": "[]"}


def test_calls_that_all_have_index_0_are_kept_apart_by_their_ids() -> None:
    events = [event(call(0, "a", "add", "{}")), event(call(0, "b", "mul", "[]"))]
    assert opened(*events) == [("a", "add"), ("b", "mul")]
    assert arguments(*events) == {"a": "{}", "b": "[]"}


def test_arguments_may_come_as_an_object() -> None:
    assert arguments(event(call(0, "a", "add", {"x": 1}))) == {"a": '{"x":1}'}


@pytest.mark.parametrize(
    "finish_reason, reason",
    [
        ("stop", StopReason.END_TURN),
        ("length", StopReason.MAX_TOKENS),
        ("tool_calls", StopReason.TOOL_USE),
        ("content_filter", StopReason.CONTENT_FILTER),
        ("something new", StopReason.END_TURN),
    ],
)
def test_every_finish_reason_has_its_meaning(finish_reason: str, reason: StopReason) -> None:
    chunks, _ = read(event({"content": "a"}, finish_reason), DONE)
    assert chunks[-1] == ModelFinished(reason, None)


def test_an_answer_with_calls_has_the_stop_reason_tool_use() -> None:
    chunks, _ = read(event(call(0, "a", "add", "{}"), "stop"), DONE)
    assert chunks[-1] == ModelFinished(StopReason.TOOL_USE, None)


def test_an_answer_is_over_with_its_finish_reason_even_without_done() -> None:
    chunks, stream = read(event({"content": "a"}, "stop"))
    assert chunks == [TextChunk("a"), ModelFinished(StopReason.END_TURN, None)]
    assert stream.complete


def test_the_done_line_may_lack_its_newline() -> None:
    chunks, stream = read(event({"content": "a"}), b"data: [DONE]")
    assert stream.complete
    assert chunks[-1] == ModelFinished(StopReason.END_TURN, None)


@pytest.mark.parametrize("left", [b"", b'data: {"choices": [{"delta"', b"da"])
def test_bytes_that_end_before_the_answer_are_an_interruption(left: bytes) -> None:
    assert failure(event({"content": "a"}) + left)[0] == "stream_interrupted"


@pytest.mark.parametrize(
    "broken", [b"data: {nonsense\n\n", b"data: 7\n\n", b'data: {"choices": [7]}\n\n']
)
def test_an_unreadable_chunk_fails_after_the_chunks_before_it(broken: bytes) -> None:
    chunks, stream = read(event({"content": "a"}) + broken + event({"content": "never"}))
    assert chunks == [TextChunk("a")]
    assert stream.failure is not None
    assert stream.failure.kind == "provider"


@pytest.mark.parametrize(
    "error, kind",
    [
        ({"message": "m", "code": 429}, "rate_limited"),
        ({"message": "m", "code": "502"}, "provider"),
        ({"message": "m", "type": "overloaded_error"}, "overloaded"),
        ({"message": "m", "code": "context_length_exceeded"}, "context_overflow"),
        ({"message": "m"}, "provider"),
        ("m", "provider"),
    ],
)
def test_an_error_inside_a_stream_keeps_its_meaning(error: Any, kind: str) -> None:
    assert failure(event({"content": "a"}) + data({"error": error})) == (kind, "m")


def test_stopping_with_an_error_is_a_failure() -> None:
    assert failure(event(finish="error") + DONE)[0] == "provider"


def test_a_line_over_the_limit_is_refused() -> None:
    assert failure(b"data: " + b"x" * MAX_LINE_BYTES)[0] == "provider"


def test_tokens_are_read_in_every_spelling() -> None:
    raw = {
        "prompt_tokens": 10,
        "completion_tokens": -1,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    assert usage_of(raw) == TokenUsage(
        prompt_tokens=10,
        completion_tokens=0,
        total_tokens=9,
        cache_read_tokens=4,
        cache_creation_tokens=2,
        thinking_tokens=5,
    )
    assert usage_of({"prompt_cache_hit_tokens": 3, "prompt_tokens_details": None}) == TokenUsage(
        cache_read_tokens=3
    )
    assert usage_of({"prompt_tokens": "many"}) == TokenUsage()


def body_of(request: ModelRequest, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(request_body(request, "m", options))
    return body


def messages_of(*messages: Message | str) -> list[Any]:
    messages_: list[Any] = body_of(asking(*messages))["messages"]
    return messages_


def test_a_request_streams_and_asks_for_usage() -> None:
    body = body_of(asking("hi"), temperature=0.2, stream=False, model="other")
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.2,
        "messages": [
            {"role": "system", "content": "You are a test."},
            {"role": "user", "content": "hi"},
        ],
    }


def test_no_system_prompt_is_no_message() -> None:
    request = ModelRequest(system_prompt="", messages=[])
    assert body_of(request)["messages"] == []


def test_tools_are_offered_with_their_schema() -> None:
    [tool] = body_of(asking("hi", tools=[ADD]))["tools"]
    assert tool["function"]["name"] == "add"
    assert tool["function"]["parameters"] == ADD.parameters


def test_calls_and_their_results_go_back() -> None:
    made = ToolCall(CallId("c1"), "add", {"a": 1})
    empty = ToolCall(CallId("c2"), "now", None)
    _, sent, back = messages_of(assistant("ok", made, empty), result("c1", "3"))
    assert sent["content"] == "ok"
    assert [c["id"] for c in sent["tool_calls"]] == ["c1", "c2"]
    assert [c["function"]["arguments"] for c in sent["tool_calls"]] == ['{"a":1}', "{}"]
    assert back == {"role": "tool", "tool_call_id": "c1", "content": "3"}


PNG = Base64Source("image/png", "aGk=")


@pytest.mark.parametrize(
    "block, part",
    [
        (
            Media("image", UrlSource("https://x/y.png")),
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        ),
        (
            Media("image", PNG),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        ),
        (
            Media("document", Base64Source("application/pdf", "aGk="), "a.pdf"),
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
            },
        ),
        (
            Media("audio", Base64Source("audio/mpeg", "aGk=")),
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
        ),
        (
            Media("video", UrlSource("https://x/y.mp4")),
            {"type": "video_url", "video_url": {"url": "https://x/y.mp4"}},
        ),
    ],
)
def test_media_go_as_parts(block: Block, part: dict[str, Any]) -> None:
    message = _user([Text("look"), Thinking("no"), block])
    assert messages_of(message)[1]["content"] == [{"type": "text", "text": "look"}, part]


def test_a_part_that_this_version_does_not_know_is_named() -> None:
    _, sent = messages_of(_user([Text("look"), UnknownBlock({"type": "hologram"})]))
    assert sent["content"][1]["text"] == "[a part of type 'hologram' that can't be shown to you]"


def test_text_that_utf8_cannot_carry_does_not_stop_a_request() -> None:
    assert body_of(asking("a\ud800b"))["messages"][1]["content"] == "a?b"


def _user(blocks: Sequence[Block] | Iterable[Block]) -> Message:
    return Message(id=MessageId("u"), role=Role.USER, content=tuple(blocks))
