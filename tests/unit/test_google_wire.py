"""Google's streams: chunks are the same for pieces of any size, and failures keep the chunks before them."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from app.domain.errors import InferenceFailed
from app.domain.ids import CallId
from app.domain.threads.provider_data import PartKind
from app.llm.google.stream import GoogleStream
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
from tests.support.recorded_answers import ARGUMENTS, TEXT, THOUGHT, WIRES, data, google

FIRST = WIRES["google"].first
USAGE = TokenUsage(prompt_tokens=9, completion_tokens=7, total_tokens=16)


def stream_of() -> GoogleStream:
    return GoogleStream(lambda: "call_new", "https://g.test", "gemini")


def read(pieces: Iterable[bytes]) -> tuple[list[ModelChunk], InferenceFailed | None]:
    stream = stream_of()
    return parsed(stream, pieces), stream.failure


def chunks_of(*pieces: bytes) -> list[ModelChunk]:
    return chunks_without_failure(stream_of(), pieces)


def failure_of(*pieces: bytes) -> tuple[str, str]:
    return failure_in(stream_of(), pieces)


def candidate(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **more}]}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1_000, 100_000])
def test_the_chunks_are_the_same_for_pieces_of_any_size(size: int) -> None:
    pieces = [FIRST[at : at + size] for at in range(0, len(FIRST), size)]
    chunks = chunks_of(*pieces)
    assert [each for each in chunks if not isinstance(each, ProviderParts)] == [
        ReasoningChunk(THOUGHT),
        TextChunk(TEXT),
        CallOpened(CallId("call_g"), "look"),
        CallArguments(CallId("call_g"), json.dumps(ARGUMENTS, separators=(",", ":"))),
        ModelFinished(StopReason.TOOL_USE, USAGE),
    ]


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_lines_may_end_in_either_way(end: str) -> None:
    assert chunks_of(FIRST.replace(b"\n", end.encode())) == chunks_of(FIRST)


def test_parts_are_handed_over_once_one_has_a_signature() -> None:
    [parts] = [each for each in chunks_of(FIRST) if isinstance(each, ProviderParts)]
    assert [part.kind for part in parts.parts.values()] == [PartKind.TEXT, PartKind.CALL]
    assert parts.parts[1].call_id == "call_g"
    assert parts.issuer == {
        "adapter": "google",
        "provider": "google",
        "address": "https://g.test",
        "model": "gemini",
    }


def test_an_answer_with_nothing_to_send_back_has_no_parts() -> None:
    chunks = chunks_of(google([{"text": "a", "thought": True}], [{"text": "b"}]))
    assert not [each for each in chunks if isinstance(each, ProviderParts)]


def test_images_within_thoughts_are_left_out() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thought": True}
    chunks = chunks_of(google([image], [{"text": "b"}]))
    assert not [each for each in chunks if isinstance(each, ProviderParts)]


@pytest.mark.parametrize("second", ["c1", None])
def test_calls_have_different_ids(second: str | None) -> None:
    calls = [{"functionCall": {"id": id_, "name": "now"}} for id_ in ("c1", second)]
    chunks = chunks_of(google(calls))
    assert [each for each in chunks if isinstance(each, CallOpened)] == [
        CallOpened(CallId("c1"), "now"),
        CallOpened(CallId("call_new"), "now"),
    ]


def test_usage_counts_thoughts_and_the_results_of_own_tools() -> None:
    usage = {
        "promptTokenCount": 5,
        "toolUsePromptTokenCount": 20,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 4,
        "cachedContentTokenCount": 2,
        "totalTokenCount": 32,
    }
    event = {**candidate({"text": "a"}, finishReason="STOP"), "usageMetadata": usage}
    finished = chunks_of(data(event))[-1]
    assert isinstance(finished, ModelFinished)
    assert finished.usage == TokenUsage(
        prompt_tokens=25,
        completion_tokens=7,
        total_tokens=32,
        cache_read_tokens=2,
        thinking_tokens=4,
    )


def test_counts_that_a_later_event_has_not_stay() -> None:
    first = {**candidate({"text": "a"}), "usageMetadata": {"promptTokenCount": 5}}
    last = {**candidate(finishReason="STOP"), "usageMetadata": {"candidatesTokenCount": 1}}
    finished = chunks_of(data(first, last))[-1]
    assert isinstance(finished, ModelFinished)
    assert finished.usage == TokenUsage(prompt_tokens=5, completion_tokens=1, total_tokens=6)


def test_the_tokens_of_the_prompt_are_reported_early_and_once() -> None:
    event = {**candidate({"text": "a"}), "usageMetadata": {"promptTokenCount": 5}}
    chunks, _ = read([data(event), data(event)])
    so_far = TokenUsage(prompt_tokens=5, completion_tokens=0, total_tokens=5)
    assert [each for each in chunks if isinstance(each, UsageSoFar)] == [UsageSoFar(so_far)]
    assert isinstance(chunks[1], UsageSoFar)


def test_an_answer_without_counts_has_no_usage() -> None:
    finished = chunks_of(data(candidate({"text": "a"}, finishReason="STOP")))[-1]
    assert finished == ModelFinished(StopReason.END_TURN, None)


def test_events_after_the_stop_reason_still_count() -> None:
    last = {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 7}}
    chunks = chunks_of(data(candidate({"text": "a"}, finishReason="MAX_TOKENS"), last))
    assert chunks[-1] == ModelFinished(StopReason.MAX_TOKENS, USAGE)


def test_a_server_between_may_say_that_the_answer_has_ended() -> None:
    done = b"data: [DONE]\n\n"
    stopped = data(candidate({"text": "a"}, finishReason="STOP"))
    assert chunks_of(stopped + done) == chunks_of(stopped)
    assert failure_of(data(candidate({"text": "a"})) + done)[0] == "provider"


def test_a_blocked_prompt_is_filtered() -> None:
    chunks = chunks_of(data({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}))
    assert chunks == [ModelFinished(StopReason.CONTENT_FILTER, None)]


@pytest.mark.parametrize(
    "events, kind, detail",
    [
        ([candidate({"text": "a"})], "stream_interrupted", "ended before its answer did"),
        ([{"candidates": [7]}], "provider", "unknown shape"),
        ([candidate({"functionCall": {"args": {}}})], "provider", "unknown shape"),
        ([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}], "rate_limited", "429"),
        ([{"error": {"code": 503, "message": "later"}}], "overloaded", "later"),
        (
            [candidate(finishReason="MALFORMED_FUNCTION_CALL", finishMessage="call:look{")],
            *("provider", "call:look{"),
        ),
    ],
)
def test_failures_are_named(events: list[dict[str, Any]], kind: str, detail: str) -> None:
    failure = failure_of(data(*events))
    assert failure[0] == kind
    assert detail in failure[1]


@pytest.mark.parametrize(
    "broken", [b'data: {"candidates": [{"content\n\n', b"data: " + b"x" * (MAX_LINE_BYTES + 1)]
)
def test_the_chunks_before_a_failure_are_kept(broken: bytes) -> None:
    chunks, failure = read([data(candidate({"text": "kept"})), broken])
    assert chunks == [TextChunk("kept")]
    assert failure is not None


def test_nothing_is_read_after_a_failure() -> None:
    error = {"error": {"code": 500, "message": "broke"}}
    chunks, failure = read([data(error, candidate({"text": "late"}, finishReason="STOP"))])
    assert chunks == []
    assert failure is not None
    assert failure.detail == "broke"
