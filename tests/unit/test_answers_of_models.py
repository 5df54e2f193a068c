"""A model's answer as it comes: what it costs, and which of its calls are whole."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.events.tool_call_events import ToolCallCancel, ToolCallReady
from app.domain.ids import CallId
from app.domain.runs.runs import Usage
from app.runtime.inference.streamed_answer import StreamedAnswer, add_usage, usage_json
from app.runtime.ports import (
    CallArguments,
    CallOpened,
    ModelFinished,
    StopReason,
    TextChunk,
    TokenUsage,
)

COUNTS = st.builds(
    TokenUsage,
    **{name: st.none() | st.integers(0, 9) for name in TokenUsage.__dataclass_fields__},
)


class Listener:
    """A run as an answer needs it: who is told, and what it has used."""

    class agent:
        class model:
            name = "scripted"

    def __init__(self) -> None:
        self.usage = Usage(100, 200)
        self.said: list[Any] = []

    def emit(self, event: Any) -> None:
        self.said.append(event)


def an_answer(*arguments: str) -> tuple[StreamedAnswer, Listener]:
    """An answer with a call for each of these arguments."""
    listener = Listener()
    answer = StreamedAnswer(listener)  # type: ignore[arg-type]
    answer.begin_attempt()
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
    return [(one.id, one.arguments) for one in listener.said if isinstance(one, ToolCallReady)]


def taken_back(listener: Listener) -> list[str]:
    return [one.id for one in listener.said if isinstance(one, ToolCallCancel)]


@given(COUNTS, COUNTS)
def test_counts_add_up_and_stay_unknown_where_neither_is_known(
    one: TokenUsage, other: TokenUsage
) -> None:
    total = add_usage(one, other)
    for name in TokenUsage.__dataclass_fields__:
        known = [n for n in (getattr(one, name), getattr(other, name)) if n is not None]
        assert getattr(total, name) == (sum(known) if known else None)


def test_usage_is_shown_as_far_as_it_is_known() -> None:
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
    assert usage_of(answer) is None
    answer.add(ModelFinished(StopReason.END_TURN, TokenUsage(prompt_tokens=3)))
    answer.begin_attempt()
    assert reason_of(answer) is None
    answer.add(ModelFinished(StopReason.END_TURN, TokenUsage(prompt_tokens=4, completion_tokens=5)))
    assert usage_of(answer) == TokenUsage(prompt_tokens=7, completion_tokens=5)
    assert listener.usage == Usage(107, 205)


def test_an_attempt_has_begun_once_anything_of_it_has_come() -> None:
    answer, _ = an_answer()
    assert not has_begun(answer)
    answer.add(TextChunk("a"))
    assert has_begun(answer)
    answer.begin_attempt()
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
def test_a_call_whose_arguments_arent_json_is_taken_back(arguments: str) -> None:
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
def test_of_an_answer_that_broke_off_only_whole_calls_are_kept(
    arguments: list[str], whole: list[str]
) -> None:
    answer, listener = an_answer(*arguments)
    assert answer.has_complete_calls is bool(whole)
    dropped = answer.keep_complete_calls("cut")
    assert [id for id, _ in ready(listener)] == whole
    assert len(dropped) == len(arguments) - len(whole)
    assert sorted([*whole, *taken_back(listener)]) == [f"c{n}" for n, _ in enumerate(arguments, 1)]
