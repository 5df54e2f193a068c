"""A streamed answer of a model: its usage, and which of its calls are complete."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.events.tool_call_events import ToolCallCancel, ToolCallReady
from app.domain.ids import CallId
from app.domain.runs.runs import Usage
from app.runtime.inference.streamed_answer import (
    MAX_ARGUMENT_CHARACTERS,
    StreamedAnswer,
    add_usage,
    usage_json,
)
from app.runtime.ports.models import (
    CallArguments,
    CallOpened,
    ModelFinished,
    StopReason,
    TextChunk,
    TokenUsage,
    UsageSoFar,
)
from tests.support.streamed_answers import Listener

COUNTS = st.builds(
    TokenUsage,
    **{name: st.none() | st.integers(0, 9) for name in TokenUsage.__struct_fields__},
)


def an_answer(*arguments: str) -> tuple[StreamedAnswer, Listener]:
    """An answer with a call for each of these arguments."""
    listener = Listener()
    answer = StreamedAnswer(listener)  # type: ignore[arg-type]
    answer.begin_attempt("scripted")
    for number, text in enumerate(arguments, 1):
        answer.add(CallOpened(CallId(f"c{number}"), "pay"))
        answer.add(CallArguments(CallId(f"c{number}"), text))
    return answer, listener


def has_begun(answer: StreamedAnswer) -> bool:
    return answer.has_begun


def usage_of(answer: StreamedAnswer) -> TokenUsage | None:
    return answer.usage


def reason_of(answer: StreamedAnswer) -> StopReason | None:
    return answer.stop_reason


def ready(listener: Listener) -> list[tuple[str, Any]]:
    return [
        (one.tool_call_id, one.arguments)
        for one in listener.emitted
        if isinstance(one, ToolCallReady)
    ]


def taken_back(listener: Listener) -> list[str]:
    return [one.tool_call_id for one in listener.emitted if isinstance(one, ToolCallCancel)]


@given(COUNTS, COUNTS)
def test_token_counts_add_up_and_stay_unknown_if_both_are(
    one: TokenUsage, other: TokenUsage
) -> None:
    total = add_usage(one, other)
    for name in TokenUsage.__struct_fields__:
        known = [n for n in (getattr(one, name), getattr(other, name)) if n is not None]
        assert getattr(total, name) == (sum(known) if known else None)


def test_usage_shows_known_counts_only() -> None:
    assert usage_json(None) is None
    assert usage_json(TokenUsage()) == {}
    assert usage_json(TokenUsage(prompt_tokens=0, completion_tokens=3)) == {
        "prompt_tokens": 0,
        "completion_tokens": 3,
    }


def test_the_tokens_of_all_attempts_count() -> None:
    answer, listener = an_answer()
    assert usage_of(answer) is None
    answer.add(ModelFinished(StopReason.END_TURN, None))
    answer.end_attempt()
    assert usage_of(answer) is None
    answer.add(ModelFinished(StopReason.END_TURN, TokenUsage(prompt_tokens=3)))
    answer.end_attempt()
    answer.begin_attempt("scripted")
    assert reason_of(answer) is None
    answer.add(ModelFinished(StopReason.END_TURN, TokenUsage(prompt_tokens=4, completion_tokens=5)))
    answer.end_attempt()
    assert usage_of(answer) == TokenUsage(prompt_tokens=7, completion_tokens=5)
    assert listener.usage == Usage(107, 205)
    assert listener.billed == ["scripted", "scripted"]


def test_an_attempt_that_breaks_off_counts_what_the_provider_had_reported() -> None:
    answer, listener = an_answer()
    answer.add(UsageSoFar(TokenUsage(prompt_tokens=3)))
    assert not has_begun(answer)
    answer.add(UsageSoFar(TokenUsage(prompt_tokens=3, completion_tokens=2)))
    answer.end_attempt()
    answer.end_attempt()
    assert listener.usage == Usage(103, 202)
    answer.begin_attempt("fallback")
    answer.add(UsageSoFar(TokenUsage(prompt_tokens=5)))
    answer.add(ModelFinished(StopReason.END_TURN, TokenUsage(prompt_tokens=5, completion_tokens=1)))
    answer.end_attempt()
    assert listener.usage == Usage(108, 203)
    assert listener.billed == ["scripted", "fallback"]


def test_tokens_that_are_not_reported_count_as_none() -> None:
    answer, listener = an_answer()
    answer.add(ModelFinished(StopReason.END_TURN, TokenUsage()))
    answer.end_attempt()
    assert listener.usage == Usage(100, 200)


@pytest.mark.parametrize(
    "pieces, text, is_full",
    [
        (["abc", "defg"], "abcdefg", False),
        (["abc", "defgh"], "abcdefg", True),
        (["abcdefg", "h", "i"], "abcdefg", True),
        (["abcdefgh", "i"], "abcdefg", True),
    ],
)
def test_a_continued_answer_and_its_beginning_share_one_limit(
    pieces: list[str], text: str, is_full: bool
) -> None:
    listener = Listener()
    listener.max_answer_bytes = 10
    answer = StreamedAnswer(listener, "012")  # type: ignore[arg-type]
    assert not has_begun(answer)
    for piece in pieces:
        answer.add(TextChunk(piece))
    assert answer.text == "012" + text
    assert answer.is_full is is_full


def test_an_attempt_has_begun_once_its_first_chunk_has_arrived() -> None:
    answer, _ = an_answer()
    assert not has_begun(answer)
    answer.add(TextChunk("a"))
    assert has_begun(answer)
    answer.begin_attempt("scripted")
    assert not has_begun(answer)
    assert answer.text == "a"


@pytest.mark.parametrize(
    "arguments, parsed",
    [("", None), ("  ", None), ("{}", {}), ('{"a": 1}', {"a": 1}), ("[1]", [1]), ("null", None)],
)
def test_arguments_are_json_or_none(arguments: str, parsed: object) -> None:
    answer, listener = an_answer(arguments)
    assert answer.complete("malformed") == ()
    assert ready(listener) == [("c1", parsed)]
    assert [call.arguments for call in answer.calls] == [parsed]


@pytest.mark.parametrize("arguments", ['{"a"', "NaN", '{"a": 1e999}', "Infinity", "[" * 100_000])
def test_a_call_whose_arguments_arent_json_is_cancelled(arguments: str) -> None:
    answer, listener = an_answer(arguments, "{}")
    assert answer.complete("malformed") == ("pay",)
    assert taken_back(listener) == ["c1"]
    assert ready(listener) == [("c2", {})]


@pytest.mark.parametrize(
    "arguments, whole",
    [
        ([], []),
        (["{}"], ["c1"]),
        (["{"], []),
        ([""], []),
        (["", "{"], ["c1"]),
        (["1"], []),
        (["1", "2"], []),
        (["{}", ""], ["c1"]),
        (["", "{}", "{"], ["c1", "c2"]),
    ],
)
def test_an_interrupted_answer_keeps_its_complete_calls_only(
    arguments: list[str], whole: list[str]
) -> None:
    answer, listener = an_answer(*arguments)
    assert answer.has_complete_calls is bool(whole)
    dropped = answer.keep_complete_calls("cut")
    assert [id for id, _ in ready(listener)] == whole
    assert len(dropped) == len(arguments) - len(whole)
    assert sorted([*whole, *taken_back(listener)]) == [f"c{n}" for n, _ in enumerate(arguments, 1)]


@pytest.mark.parametrize("more, oversized", [(0, []), (1, ["pay"])])
def test_arguments_may_have_just_their_maximum(more: int, oversized: list[str]) -> None:
    text = '"' + "x" * (MAX_ARGUMENT_CHARACTERS - 2 + more) + '"'
    answer, listener = an_answer(text)
    assert answer.complete("cut") == ()
    assert answer.oversized == oversized
    assert len(ready(listener)) == 1 - more
