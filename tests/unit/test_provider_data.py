"""Provider data of an answer: collected from a stream, bounded, stored byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.ids import CallId, MessageId
from app.domain.json_values import compact_sorted, float_as_stored
from app.domain.threads.messages import Message, Role, Text, TruncationReason, message_to_json
from app.domain.threads.provider_data import (
    MAX_PROVIDER_DATA_BYTES,
    PartKind,
    ProviderData,
    ProviderPart,
    provider_data_of,
)
from app.runtime.inference.streamed_answer import StreamedAnswer
from app.runtime.ports.models import CallArguments, CallOpened, ProviderParts, TextChunk
from app.storage.codec import message_columns, message_of
from tests.support.streamed_answers import Listener

ISSUER = {"adapter": "a", "model": "m"}
SIGNED = {"signature": "c2ln"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def thought(text: str = "hm", data: Any = SIGNED) -> ProviderPart:
    return ProviderPart(PartKind.THINKING, data, text)


def text_part(text: str, data: Any = None) -> ProviderPart:
    return ProviderPart(PartKind.TEXT, data or {}, text)


def an_answer() -> StreamedAnswer:
    answer = StreamedAnswer(Listener())  # type: ignore[arg-type]
    answer.begin_attempt("scripted")
    return answer


def test_texts_are_kept_by_their_place() -> None:
    answer = an_answer()
    answer.add(TextChunk("one"))
    answer.add(ProviderParts(ISSUER, {0: text_part("one"), 1: thought()}))
    answer.add(TextChunk("three"))
    answer.add(ProviderParts(ISSUER, {2: text_part("three", SIGNED)}))
    assert answer.provider_data == ProviderData(
        ISSUER,
        (
            ProviderPart(PartKind.TEXT, {}, start=0, end=3),
            ProviderPart(PartKind.THINKING, SIGNED, "hm", start=3, end=3),
            ProviderPart(PartKind.TEXT, SIGNED, start=3, end=8),
        ),
    )


def test_an_attempt_continues_behind_the_text_before_it() -> None:
    answer = an_answer()
    answer.add(ProviderParts(ISSUER, {0: thought("first")}))
    answer.add(TextChunk("cut o"))
    answer.begin_attempt("scripted")
    answer.add(ProviderParts(ISSUER, {0: thought("second")}))
    answer.add(TextChunk("ff"))
    data = answer.provider_data
    assert data is not None
    assert [(part.text, part.start) for part in data.parts] == [("first", 0), ("second", 5)]


def test_a_later_chunk_replaces_a_part() -> None:
    answer = an_answer()
    answer.add(ProviderParts(ISSUER, {0: thought(data={"id": "r"})}))
    answer.add(ProviderParts(ISSUER, {0: thought(data={"id": "r", **SIGNED})}))
    answer.add(TextChunk("yes"))
    data = answer.provider_data
    assert data is not None
    assert [part.data for part in data.parts] == [{"id": "r", **SIGNED}]


def test_a_discarded_answer_has_none() -> None:
    answer = an_answer()
    answer.add(ProviderParts(ISSUER, {0: thought()}))
    answer.start_over("stall")
    answer.begin_attempt("scripted")
    answer.add(TextChunk("yes"))
    assert answer.provider_data is None


def test_an_answer_without_text_and_calls_has_none() -> None:
    answer = an_answer()
    answer.add(ProviderParts(ISSUER, {0: thought()}))
    assert answer.provider_data is None
    answer.add(CallOpened(CallId("c"), "look"))
    answer.add(CallArguments(CallId("c"), "{}"))
    answer.complete("")
    assert answer.provider_data is not None


@pytest.mark.parametrize(("size", "is_kept"), [(200_000, True), (MAX_PROVIDER_DATA_BYTES, False)])
def test_too_many_data_are_left_out(size: int, is_kept: bool) -> None:
    answer = an_answer()
    answer.add(TextChunk("yes"))
    answer.add(ProviderParts(ISSUER, {0: thought("x" * size), 1: text_part("yes")}))
    assert (answer.provider_data is not None) is is_kept


@pytest.mark.parametrize("text", ["a\0b", "\ud83d", "a\udc00"])
def test_what_postgres_cannot_store_loses_its_data(text: str) -> None:
    parts = [thought(text), text_part(text, SIGNED), thought("fine")]
    data = provider_data_of(ISSUER, [(0, parts)], text)
    assert data is not None
    assert [(part.text, part.data) for part in data.parts] == [("", {}), ("fine", SIGNED)]


def test_a_text_whose_length_changes_leaves_nothing() -> None:
    pair = "\ud83d\ude00"
    assert provider_data_of(ISSUER, [(0, [thought()])], pair) is None


def test_parts_without_data_are_not_stored() -> None:
    assert provider_data_of(ISSUER, [(0, [text_part("yes")])], "yes") is None


@given(JSON, st.text(st.characters(exclude_categories=["Cs"])))
def test_the_log_keeps_data_byte_for_byte(data: Any, text: str) -> None:
    parts = (ProviderPart(PartKind.THINKING, {"b": data, "a": 1}, text),)
    message = Message(
        id=MessageId("m"),
        role=Role.ASSISTANT,
        content=(Text("yes"),),
        provider_data=ProviderData(ISSUER, parts),
        cut_short=TruncationReason.CANCELLED,
    )
    read = _read(message)
    assert read.provider_data is not None
    assert json.dumps(read.provider_data.parts[0].data) == json.dumps(parts[0].data)
    assert read.provider_data.parts[0].text == text
    assert read == message


def _read(message: Message) -> Message:
    columns = message_columns(message)
    row = {**columns, "content": json.loads(columns["content"]), "seq": 1, "created_at": None}
    return message_of(row).message


def test_events_and_lists_leave_provider_data_out() -> None:
    data = ProviderData(ISSUER, (thought(),))
    message = Message(id=MessageId("m"), role=Role.ASSISTANT, content=(), provider_data=data)
    assert "c2ln" not in str(message_to_json(message))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1e22", 10**22),
        ("-1e16", -(10**16)),
        ("-0.0", 0.0),
        ("1e-7", 1e-7),
    ],
)
def test_numbers_are_as_postgres_gives_them_back(written: str, read: float) -> None:
    value = float_as_stored(written)
    assert (value, type(value)) == (read, type(read))
    assert "e+" not in compact_sorted(value)
