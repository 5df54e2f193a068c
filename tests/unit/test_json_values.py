"""JSON values: one text for equal values, and only characters that Postgres can keep."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.json_values import (
    as_object,
    canonical,
    compact,
    compact_sorted,
    digest,
    is_unicode,
    parsed,
    storable,
    storable_text,
)

TEXTS = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.parametrize(
    "text, stored",
    [
        ("plain", "plain"),
        ("a\0b", "a\ufffdb"),
        ("\0\0", "\ufffd\ufffd"),
        ("ä\0b", "ä\ufffdb"),
        ("\ud800", "\ufffd"),
        ("a\udfffb", "a\ufffdb"),
        ("\U0001f600", "\U0001f600"),
        ("", ""),
    ],
)
def test_each_character_that_cant_be_stored_is_replaced(text: str, stored: str) -> None:
    assert storable_text(text) == stored


@given(TEXTS)
def test_text_that_can_be_stored_stays_as_it_is(text: str) -> None:
    stored = storable_text(text)
    assert "\0" not in stored
    assert stored.encode().decode() == stored
    assert storable_text(stored) == stored
    is_storable = "\0" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)
    assert (stored == text) is is_storable


@given(TEXTS)
def test_only_lone_surrogates_are_no_unicode(text: str) -> None:
    assert is_unicode(text) is not any("\ud800" <= sign <= "\udfff" for sign in text)
    assert not is_unicode(f"{text}\ud800")


def test_strings_and_keys_at_any_depth_are_made_storable() -> None:
    value = {"a\0": ["x\0", {"k": ("\0", 1, None, True)}], "n": 1.5}
    assert storable(value) == {
        "a\ufffd": ["x\ufffd", {"k": ["\ufffd", 1, None, True]}],
        "n": 1.5,
    }


@given(VALUES)
def test_a_value_survives_each_json_encoding(value: Any) -> None:
    stored = storable(value)
    assert json.loads(compact(stored)) == stored
    assert json.loads(canonical(stored)) == stored


@given(VALUES)
def test_compact_json_is_what_the_encoder_of_the_library_writes(value: Any) -> None:
    usual = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    assert compact(value) == usual.encode(value)
    usual = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert compact_sorted(value) == usual.encode(value)


@given(VALUES)
def test_stored_json_is_read_as_the_library_reads_it(value: Any) -> None:
    for text in (compact(value), canonical(value)):
        # As text, because 1 and 1.0 are equal.
        assert repr(parsed(text)) == repr(json.loads(text))


@pytest.mark.parametrize(
    "text",
    ["1e400", "-1e400", "9" * 400, "-0", "-0.0", "1E5", '"\\ud800"', "[" * 900 + "]" * 900],
)
def test_unusual_json_is_read_as_the_library_reads_it(text: str) -> None:
    assert repr(parsed(text)) == repr(json.loads(text))


@pytest.mark.parametrize("value", [object(), {1, 2}, {(1, 2): 3}])
def test_a_value_without_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        compact(value)


def test_compact_json_has_no_spaces_and_no_needless_escapes() -> None:
    assert compact({"b": [1, "ä"], "a": None}) == '{"b":[1,"ä"],"a":null}'


def test_equal_objects_have_one_canonical_text_and_one_digest() -> None:
    one, other = {"b": 1, "a": {"d": "ä", "c": 2}}, {"a": {"c": 2, "d": "ä"}, "b": 1}
    assert canonical(one) == canonical(other) == '{"a":{"c":2,"d":"\\u00e4"},"b":1}'
    assert digest(one) == digest(other)
    assert digest(one) != digest({**one, "b": 2})
    assert digest(None).startswith("sha256:")


@pytest.mark.parametrize("value", [None, 1, "{}", [], [{}], True])
def test_as_object_accepts_objects_only(value: Any) -> None:
    assert as_object(value) is None
    assert as_object({"a": value}) == {"a": value}
