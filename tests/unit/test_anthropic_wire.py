"""Anthropic's streams: chunks are the same for pieces of any size, and failures keep the chunks before them."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from app.domain.errors import InferenceFailed
from app.domain.ids import CallId
from app.domain.structs import replace
from app.domain.threads.provider_data import PartKind, ProviderData
from app.llm.anthropic.conversation import AnthropicConversation
from app.llm.anthropic.model_traits import traits_of
from app.llm.anthropic.stream import AnthropicStream
from app.llm.http.answer_parser import MAX_LINE_BYTES
from app.runtime.ports.models import (
    CallArguments,
    CallOpened,
    ModelChunk,
    ModelFinished,
    ProviderParts,
    ReasoningChunk,
    StopReason,
    TextChunk,
    TokenUsage,
    UsageSoFar,
)
from tests.support.parsed_answers import chunks_without_failure, failure_in, parsed
from tests.support.recorded_answers import (
    ARGUMENTS,
    REDACTED,
    SIGNATURE,
    TEXT,
    THOUGHT,
    WIRES,
    anthropic,
    anthropic_block,
    anthropic_call,
    anthropic_text,
    named,
    thinking,
)
from tests.support.transcripts import assistant, joined

FIRST = WIRES["anthropic"].first


def stream_of() -> AnthropicStream:
    return AnthropicStream(lambda: "call_new", "https://a.test", "claude")


def read(pieces: Iterable[bytes]) -> tuple[list[ModelChunk], InferenceFailed | None]:
    stream = stream_of()
    return parsed(stream, pieces), stream.failure


def chunks_of(*pieces: bytes) -> list[ModelChunk]:
    return chunks_without_failure(stream_of(), pieces)


def failure_of(*pieces: bytes) -> tuple[str, str]:
    return failure_in(stream_of(), pieces)


def events(*events: dict[str, Any]) -> bytes:
    return named(*events)


def message_start(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": usage}}


def message_end(reason: str | None, **usage: Any) -> list[dict[str, Any]]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    return [delta, {"type": "message_stop"}]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1_000, 100_000])
def test_the_chunks_are_the_same_for_pieces_of_any_size(size: int) -> None:
    pieces = [FIRST[at : at + size] for at in range(0, len(FIRST), size)]
    chunks = chunks_of(*pieces)
    assert [each for each in chunks if not isinstance(each, ProviderParts)] == [
        ReasoningChunk(THOUGHT),
        TextChunk(TEXT),
        CallOpened(CallId("toolu_01"), "look"),
        CallArguments(CallId("toolu_01"), json.dumps(ARGUMENTS)),
        ModelFinished(
            StopReason.TOOL_USE,
            TokenUsage(prompt_tokens=10, completion_tokens=20, total_tokens=30),
        ),
    ]


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_lines_may_end_in_either_way(end: str) -> None:
    assert chunks_of(FIRST.replace(b"\n", end.encode())) == chunks_of(FIRST)


def test_complete_thoughts_and_calls_go_back() -> None:
    parts = {
        place: part
        for each in chunks_of(FIRST)
        if isinstance(each, ProviderParts)
        for place, part in each.parts.items()
    }
    assert [parts[place].kind for place in sorted(parts)] == [
        *(PartKind.THINKING, PartKind.THINKING, PartKind.TEXT, PartKind.CALL)
    ]
    assert (parts[0].text, parts[0].data) == (THOUGHT, {"signature": SIGNATURE})
    assert parts[1].data == {"redacted": REDACTED}
    assert parts[3].call_id == "toolu_01"


def test_an_answer_with_nothing_to_send_back_has_no_parts() -> None:
    chunks = chunks_of(anthropic(anthropic_text(0), anthropic_call(1), stop="tool_use"))
    assert not [each for each in chunks if isinstance(each, ProviderParts)]


def test_a_thought_without_a_signature_does_not_go_back() -> None:
    chunks = chunks_of(anthropic(thinking(0, signature=""), anthropic_text(1), stop="end_turn"))
    assert not [each for each in chunks if isinstance(each, ProviderParts)]


def test_blocks_of_the_providers_own_tools_go_back_whole() -> None:
    searched = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": each} for each in ('{"q":', '"key"}')]
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]}
    chunks = chunks_of(
        anthropic(
            anthropic_block(0, searched, *pieces),
            anthropic_block(1, found),
            anthropic_text(2),
            stop="end_turn",
        )
    )
    parts = [
        part for each in chunks if isinstance(each, ProviderParts) for part in each.parts.values()
    ]
    assert [part.data for part in parts] == [{**searched, "input": {"q": "key"}}, found, {}]
    assert isinstance(chunks[-1], ModelFinished)
    assert chunks[-1].stop_reason is StopReason.END_TURN


def test_a_block_of_an_unknown_type_goes_back_whole() -> None:
    new = {"type": "future_block", "id": "f1", "content": {"nested": ["kept", 1, None]}}
    chunks = chunks_of(anthropic(anthropic_block(0, new), anthropic_text(1), stop="end_turn"))
    given = [each for each in chunks if isinstance(each, ProviderParts)]
    parts = {place: part for each in given for place, part in each.parts.items()}
    stored = ProviderData(given[0].issuer, (parts[0], parts[1]))
    said = replace(assistant(TEXT), provider_data=stored)
    conversation = AnthropicConversation(traits_of("claude"), "https://a.test", cites=False)
    [sent] = conversation.turns([said], 0, 1)
    assert sent["content"] == [new, {"type": "text", "text": TEXT}]


def test_a_call_may_have_its_arguments_at_once_or_none() -> None:
    at_once = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
    without = {"type": "tool_use", "id": "c2", "name": "now", "input": {}}
    chunks = chunks_of(
        anthropic(anthropic_block(0, at_once), anthropic_block(1, without), stop="tool_use")
    )
    assert chunks[:-1] == [
        CallOpened(CallId("c1"), "add"),
        CallArguments(CallId("c1"), '{"a":1}'),
        CallOpened(CallId("c2"), "now"),
    ]


@pytest.mark.parametrize("second", ["c1", ""])
def test_calls_have_different_ids(second: str) -> None:
    blocks = [
        anthropic_block(at, {"type": "tool_use", "id": id_, "name": "now", "input": {}})
        for at, id_ in enumerate(["c1", second])
    ]
    chunks = chunks_of(anthropic(*blocks, stop="tool_use"))
    assert chunks[:2] == [CallOpened(CallId("c1"), "now"), CallOpened(CallId("call_new"), "now")]


@pytest.mark.parametrize(
    "reason, expected",
    [
        ("end_turn", StopReason.END_TURN),
        ("max_tokens", StopReason.MAX_TOKENS),
        ("model_context_window_exceeded", StopReason.MAX_TOKENS),
        ("stop_sequence", StopReason.STOP_SEQUENCE),
        ("refusal", StopReason.CONTENT_FILTER),
        ("pause_turn", StopReason.END_TURN),
        ("something new", StopReason.END_TURN),
    ],
)
def test_each_stop_reason_is_known(reason: str, expected: StopReason) -> None:
    finished = chunks_of(anthropic(anthropic_text(0), stop=reason))[-1]
    assert isinstance(finished, ModelFinished)
    assert finished.stop_reason is expected


def test_usage_counts_the_cache_summaries_and_thoughts() -> None:
    chunks, _ = read(
        [
            events(
                message_start(input_tokens=5, cache_read_input_tokens=3, output_tokens=1),
                *message_end(
                    "end_turn",
                    output_tokens=9,
                    cache_creation_input_tokens=2,
                    output_tokens_details={"thinking_tokens": 4},
                    iterations=[
                        {"type": "compaction", "input_tokens": 100, "output_tokens": 10},
                        {"type": "message", "input_tokens": 5, "output_tokens": 9},
                    ],
                ),
            )
        ]
    )
    so_far, finished = chunks
    assert so_far == UsageSoFar(
        TokenUsage(prompt_tokens=8, completion_tokens=1, total_tokens=9, cache_read_tokens=3)
    )
    assert isinstance(finished, ModelFinished)
    assert finished.usage == TokenUsage(
        prompt_tokens=110,
        completion_tokens=19,
        total_tokens=129,
        cache_read_tokens=3,
        cache_creation_tokens=2,
        thinking_tokens=4,
    )


def test_an_answer_without_usage_has_none() -> None:
    chunks = chunks_of(events({"type": "message_start", "message": {}}, *message_end("end_turn")))
    assert chunks == [ModelFinished(StopReason.END_TURN, None)]


def test_unknown_events_and_pings_are_ignored() -> None:
    more = events({"type": "ping"}, {"type": "later"})
    start, rest = FIRST.split(b"\n\n", 1)
    assert chunks_of(start + b"\n\n" + more + b": comment\n\n" + rest) == chunks_of(FIRST)


def test_an_answer_that_has_stopped_needs_no_last_event() -> None:
    cut = FIRST[: FIRST.rindex(b"event: message_stop")]
    assert chunks_of(cut) == chunks_of(FIRST)


@pytest.mark.parametrize(
    "type_, kind",
    [
        ("overloaded_error", "overloaded"),
        ("rate_limit_error", "rate_limited"),
        ("api_error", "provider"),
        ("invalid_request_error", "invalid_request"),
        ("authentication_error", "unauthorized"),
        ("billing_error", "unauthorized"),
        ("something_new", "provider"),
    ],
)
def test_an_error_within_the_stream_has_the_kind_of_its_type(type_: str, kind: str) -> None:
    error = {"type": "error", "error": {"type": type_, "message": "it broke"}}
    chunks, failure = read([FIRST[: FIRST.index(b"event: message_delta")] + events(error)])
    assert failure is not None
    assert (failure.kind, failure.detail) == (kind, "it broke")
    assert TextChunk(TEXT) in joined(chunks)


@pytest.mark.parametrize("at", range(5, len(FIRST), 97))
def test_a_cut_stream_keeps_what_came_before(at: int) -> None:
    whole = chunks_of(FIRST)
    chunks, failure = read([FIRST[:at]])
    assert (failure is None) == any(isinstance(each, ModelFinished) for each in chunks)
    text = "".join(each.text for each in chunks if isinstance(each, TextChunk))
    assert TEXT.startswith(text)
    parts = [each for each in chunks if isinstance(each, ProviderParts)]
    assert parts == [each for each in whole if isinstance(each, ProviderParts)][: len(parts)]


@pytest.mark.parametrize(
    "broken",
    [
        b"data: {nonsense}\n\n",
        b"data: []\n\n",
        b'data: {"type": 7}\n\ndata: {}\n\n',
        b'data: {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta"}}\n\n',
        b'data: {"type": "error", "error": "broken"}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"data: " + b"x" * MAX_LINE_BYTES,
    ],
    ids=range(7),
)
def test_an_unreadable_event_is_a_failure_of_the_provider(broken: bytes) -> None:
    assert failure_of(broken)[0] == "provider"


def test_an_answer_without_a_stop_reason_is_interrupted() -> None:
    end = {"type": "message_stop"}
    assert failure_of(events(message_start(), end))[0] == "stream_interrupted"
