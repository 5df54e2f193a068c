"""The JSON of a model's answer is read as the standard library reads it."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from app.llm.http.answer_parser import _value_in

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=10,
)
TEXTS = st.builds(
    lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only).encode(
        "utf-8", "surrogatepass"
    ),
    VALUES,
    st.booleans(),
)
DAMAGED = st.builds(
    lambda text, at, inserted, removed: text[:at] + inserted + text[at + removed :],
    TEXTS,
    st.integers(0, 40),
    st.binary(max_size=3) | st.sampled_from([b"NaN", b"1e999", b"\\ud800", b"[", b"}", b"\\u0000"]),
    st.integers(0, 3),
)


def outcome(read: Any, data: bytes) -> str:
    """The value with its types, or that there is none."""
    try:
        return repr(read(data))
    except (ValueError, RecursionError):
        return "none"


def of_standard_library(data: bytes) -> Any:
    return json.JSONDecoder().raw_decode(data.decode("utf-8", "replace").strip())[0]


@given(TEXTS | DAMAGED)
@example(b' {"a": 1, "a": 2} and more')
@example(b'"\\ud83d\\ude00 \\ud83d"')
@example(b'"\xff"')
@example(b"[1e999, -0, -0.0, 1E5, 123456789012345678901234567890]")
@example(b"1" * 5_000)
@example(b"[" * 5_000)
@example(b"[DONE]")
@example(b"")
def test_a_value_is_that_of_the_standard_library(data: bytes) -> None:
    assert outcome(_value_in, data) == outcome(of_standard_library, data)
