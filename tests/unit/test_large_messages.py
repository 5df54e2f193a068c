"""Output of models and tools of any size does not block the event loop."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.events.partial_message import OpenCall, partial_message_of
from app.domain.events.step_events import TextDelta
from app.domain.events.tool_call_events import ToolCallDelta, ToolCallStart
from app.domain.json_tokens import has_more_tokens
from app.domain.json_values import Json, compact
from app.domain.tools.tool_calls import ToolDescriptor
from app.llm.http.answer_parser import MAX_LINE_BYTES
from app.llm.openai.stream import OpenAIStream
from app.llm.openai.tool_call_assembly import MAX_NAME_CHARACTERS, ToolCallAssembly
from app.llm.scripted.scripts import rounds_of
from app.runtime.ports.models import CallOpened
from app.tools.functions.results import result_of
from tests.support.work_ratio import within_a_pause

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text('a"\\,[{é', max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\,[{é', max_size=4), inner)
    ),
    max_leaves=20,
)


def tokens(value: Any) -> int:
    """Brackets, commas and strings of a value's JSON."""
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(1 + tokens(each) for each in value.values())
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(tokens, value))
    return int(isinstance(value, str))


@given(JSON_VALUES)
def test_the_tokens_of_a_text_are_counted_before_it_is_parsed(value: Json) -> None:
    text = compact(value)
    assert not has_more_tokens(text, tokens(value))
    assert has_more_tokens(text, tokens(value) - 1)


@pytest.mark.parametrize(
    "text", ["[]," * 300_000, '"",' * 300_000, '"' + '\\"' * 500_000, '"a,' * 333_333, "\\" * 10**6]
)
def test_tokens_are_counted_within_the_allowed_pause(text: str) -> None:
    within_a_pause(lambda: has_more_tokens(text, 100_000))


def calls_of(count: int) -> Callable[[], list[Any]]:
    def read() -> list[Any]:
        pieces = ToolCallAssembly(iter(map(str, range(count))).__next__)
        found: list[Any] = []
        for at in range(count):
            found += pieces.add(at, id="same", name="look" if at % 2 else "", arguments="")
        return [*found, *pieces.open_all()]

    return read


def test_an_answer_may_have_many_calls() -> None:
    opened = within_a_pause(calls_of(20_000))
    assert len({each.id for each in opened}) == len(opened) == 10_000


def test_a_late_name_opens_its_call() -> None:
    pieces = ToolCallAssembly(lambda: "made")
    assert list(pieces.add(0, id="a", name="", arguments="")) == []
    assert list(pieces.add(1, id="b", name="two", arguments="")) == []
    assert list(pieces.add(0, id="", name="one", arguments="")) == []
    assert [each.name for each in pieces.open_all()] == ["two", "one"]


def test_an_endless_tool_name_is_not_buffered() -> None:
    pieces = ToolCallAssembly(lambda: "made")

    def read() -> list[Any]:
        for n in range(50_000):
            list(pieces.add(0, id="a", name=f"n{n:09}", arguments=""))
        return list(pieces.open_all())

    [opened] = within_a_pause(read)
    assert isinstance(opened, CallOpened)
    assert len(opened.name) < 2 * MAX_NAME_CHARACTERS


def test_the_open_message_is_assembled_once() -> None:
    start = ("tool_call_start", {"tool_call_id": "a", "name": "look"})
    deltas = [(ToolCallDelta.event_type, {"tool_call_id": "a", "args_delta": "x" * 40})] * 25_000
    events = [(ToolCallStart.event_type, start[1]), *deltas]
    events += [(TextDelta.event_type, {"delta": "y" * 40})] * 25_000
    parts = within_a_pause(lambda: partial_message_of(events))
    assert len(parts.text) == 1_000_000
    assert parts.calls == (OpenCall("a", "look", "x" * 1_000_000),)


def fed(*pieces: bytes) -> OpenAIStream:
    stream = OpenAIStream(lambda: "made")
    for piece in pieces:
        stream.feed(piece)
    return stream


def test_a_line_in_many_small_pieces_is_assembled_once() -> None:
    pieces = [b"data: " + b"x" * 94, *[b"x" * 100] * (MAX_LINE_BYTES // 100)]
    stream = within_a_pause(lambda: fed(*pieces))
    assert stream.failure is not None
    assert "a line without end" in stream.failure.detail


@pytest.mark.parametrize(
    "line", ["[" * 1_000_000, "[" + "[]," * 1_000_000, '{"a":[' + '"",' * 1_000_000, "[" * 90_000]
)
def test_a_line_with_too_many_tokens_is_not_parsed(line: str) -> None:
    stream = within_a_pause(lambda: fed(f"data: {line}\n".encode()))
    assert stream.failure is not None


@pytest.mark.parametrize(
    "prompt",
    [
        'CALL probe {"a":1} ' * 5_000,
        'CALL probe {"a": "' * 5_000,
        "CALL probe {" + " " * 200_000,
        "CALL probe " + '{"a":' * 50_000,
        "CALLS " + "9" * 10_000 + " probe {}",
        "CALLS 1000000000 probe {}",
    ],
)
def test_a_prompt_asks_a_scripted_model_for_a_bounded_number_of_calls(prompt: str) -> None:
    rounds = within_a_pause(lambda: rounds_of(prompt))
    assert sum(each.times for each in rounds) <= 200


DESCRIPTOR = ToolDescriptor(name="list", description="", parameters={})
LARGE: dict[str, Callable[[], Any]] = {
    "numbers": lambda: list(range(1_000_000)),
    "lists": lambda: [[1, 2, 3]] * 300_000,
    "rows": lambda: [{"name": "ann", "tags": ["a", "b"]}] * 200_000,
    "names": lambda: {f"k{n}": n for n in range(300_000)},
    "text": lambda: "é" * 5_000_000,
    "texts": lambda: ["x" * 5_000_000] * 3,
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_result_is_truncated_within_the_allowed_pause(kind: str) -> None:
    value = LARGE[kind]()
    data = within_a_pause(lambda: result_of(DESCRIPTOR, value, 1 << 18).data)
    text = value if isinstance(value, str) else compact(value)
    beginning, _, note = str(data).rpartition("\n")
    assert text.startswith(beginning)
    assert len(beginning.encode()) > (1 << 18) - 4
    assert note.startswith("[Truncated: the result has more than 262144 bytes")


@given(JSON_VALUES, st.integers(1, 60))
def test_a_truncated_result_is_a_prefix_of_the_full_text(value: Json, limit: int) -> None:
    data = result_of(DESCRIPTOR, value, limit).data
    text = value if isinstance(value, str) else compact(value)
    if len(text.encode()) <= limit:
        assert data == value
    else:
        beginning, _, note = str(data).rpartition("\n")
        assert text.startswith(beginning)
        assert note.startswith("[Truncated: ")


def test_the_json_of_arguments_is_checked_by_its_tokens_only() -> None:
    """A long text with commas in it is one token."""
    text = json.dumps({"content": "a,[{" * 200_000})
    assert not has_more_tokens(text, 10)
