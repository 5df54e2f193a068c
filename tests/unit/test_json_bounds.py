"""Bounds on JSON bodies, checked before they are parsed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import Invalid, TooLarge, Unreadable
from app.http.limits.json_bounds import MAX_NUMBER_LENGTH, MAX_VALUES, problem_of_json

TRICKY = st.text(st.sampled_from('",:[]{}\\ a1é'), max_size=20)
SMALL = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TRICKY,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TRICKY, inner, max_size=5),
    max_leaves=30,
)


@given(SMALL, st.booleans())
def test_few_values_pass_with_any_text_around_them(value: Any, is_ascii: bool) -> None:
    body = [value, ",[{" * MAX_VALUES, '"' * MAX_VALUES, "\\" * 999, "9" * 5000]
    assert problem_of_json(json.dumps(body, ensure_ascii=is_ascii).encode()) is None


@given(SMALL, TRICKY)
def test_too_many_values_are_refused_with_any_text_around_them(value: Any, text: str) -> None:
    body = {text: [value, *[text] * MAX_VALUES]}
    assert isinstance(problem_of_json(json.dumps(body).encode()), TooLarge)


@pytest.mark.parametrize(
    ("piece", "joint"),
    [(b"0", b","), (b"{}", b","), (b"[]", b" , "), (b'""', b","), (b'"a":0', b","), (b"[", b"")],
)
def test_the_bound_holds_for_each_kind_of_value(piece: bytes, joint: bytes) -> None:
    assert problem_of_json(b"[" + joint.join([piece] * (MAX_VALUES // 2 - 1)) + b"]") is None
    refused = problem_of_json(b"[" + joint.join([piece] * (MAX_VALUES + 1)) + b"]")
    assert isinstance(refused, TooLarge)
    assert str(MAX_VALUES) in refused.detail


@pytest.mark.parametrize("before", [b"", b"-", b"1.", b"1e", b'"9", '])
def test_long_numbers_are_refused(before: bytes) -> None:
    refused = problem_of_json(b"[" + before + b"9" * (MAX_NUMBER_LENGTH + 1) + b"]")
    assert isinstance(refused, Invalid)
    assert str(MAX_NUMBER_LENGTH) in refused.detail
    assert problem_of_json(b"[" + before + b"9" * (MAX_NUMBER_LENGTH - 2) + b"]") is None


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_than_utf_8_are_refused(encoding: str) -> None:
    assert isinstance(problem_of_json('{"a": "\u2222"}'.encode(encoding)), Unreadable)


@pytest.mark.parametrize("body", [b"", b"null", b'"', b'"\\', b"\xff\xfe", b'{"a', b"1 " * 100_000])
def test_a_body_that_is_no_json_raises_nothing(body: bytes) -> None:
    found = problem_of_json(body)
    assert found is None or found.code in ("invalid_request", "body_too_large")
