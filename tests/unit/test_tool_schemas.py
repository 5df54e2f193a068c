"""Validators: what they accept, their messages, and that they never use the network."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import ConfigurationError
from app.domain.json_values import Json, JsonObject
from app.tools.result_limits import MAX_PROBLEM_CHARACTERS
from app.tools.schemas.validate import build_validator

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)

ORDER: JsonObject = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "color": {"enum": ["red", "green"]},
    },
    "required": ["items"],
    "additionalProperties": False,
    "$defs": {
        "Item": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Item"}},
            "required": ["name"],
        }
    },
}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


def test_a_value_that_fits_has_no_problem() -> None:
    order: JsonObject = {
        "items": [{"name": "a", "next": {"name": "b"}}],
        "note": None,
        "color": "red",
    }
    assert build_validator(ORDER).problem(order) is None


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({}, '"items" is a required property'),
        ({"items": [{"name": 1}]}, 'items[0].name: the value is not of type "string"'),
        ({"items": [{"name": "a", "next": {}}]}, 'items[0].next: "name" is a required property'),
        ({"items": [], "color": "blue"}, 'color: the value is not one of "red" or "green"'),
        ({"items": [], "x": 1}, "Additional properties are not allowed ('x' was unexpected)"),
        (
            {"items": [], "note": 1},
            'note: the value is not of type "string", and the value is not of type "null"',
        ),
        ([], 'the value is not of type "object"'),
        (None, 'the value is not of type "object"'),
    ],
)
def test_a_problem_names_the_place_and_what_is_wrong(value: Json, sentence: str) -> None:
    assert build_validator(ORDER).problem(value) == sentence


def test_several_problems_are_named_together() -> None:
    problem = build_validator(ORDER).problem({"items": 1, "color": 2})
    assert problem is not None
    assert "items: " in problem
    assert "color: " in problem


def test_an_error_in_a_union_names_the_failing_branch() -> None:
    validator = build_validator(
        {"properties": {"a": {"anyOf": [{"properties": {"b": {"type": "null"}}}]}}}
    )
    assert validator.problem({"a": {"b": 1}}) == 'a: b: the value is not of type "null"'


@pytest.mark.parametrize(
    "value",
    ["x" * 1_000_000, {"x" * 1_000_000: 1}, {"items": [{"name": 7}] * 10_000}, {"items": "secret"}],
)
def test_a_problem_is_short_and_never_echoes_the_value(value: Json) -> None:
    problem = build_validator(ORDER).problem(value)
    assert problem is not None
    assert len(problem) <= MAX_PROBLEM_CHARACTERS
    assert "secret" not in problem


@given(JSON_VALUES)
def test_any_value_is_validated_without_an_exception(value: Any) -> None:
    problem = build_validator(ORDER).problem(value)
    assert problem is None or 0 < len(problem) <= MAX_PROBLEM_CHARACTERS


def test_nesting_that_would_overflow_the_stack_is_a_problem() -> None:
    tree: JsonObject = {"type": "array", "items": {"$ref": "#"}}
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert build_validator(tree).problem(value) == "nested deeper than 100 levels"


def test_the_search_in_a_recursive_schema_ends() -> None:
    assert build_validator({"$ref": "#"}).problem({"a": 1}) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda url: {"$ref": f"{url}/schema.json"},
        lambda url: {"properties": {"a": {"items": {"$ref": f"{url}#/$defs/a"}}}},
        lambda url: {"$id": f"{url}/base.json", "properties": {"a": {"$ref": "other.json"}}},
        lambda url: {"$dynamicRef": f"{url}/schema.json#a"},
        lambda url: {"$schema": f"{url}/meta.json"},
        lambda url: {"$ref": "file:///etc/hostname"},
        lambda url: {"$ref": "other.json"},
        lambda url: {"$ref": "#/$defs/missing"},
    ],
)
def test_a_reference_out_of_the_schema_is_refused_without_network(
    make: Any, listener: socket.socket
) -> None:
    host, port = listener.getsockname()
    with pytest.raises(ConfigurationError, match=r"put what it refers to under \"\$defs\""):
        build_validator(make(f"http://{host}:{port}"))
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"$ref": {"type": "string"}}},
        {"enum": [{"$ref": "http://127.0.0.1:1/"}]},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}},
    ],
)
def test_a_property_named_ref_is_no_reference(schema: JsonObject) -> None:
    build_validator(schema)


@pytest.mark.parametrize(
    "schema", [{"type": "objekt"}, {"properties": {"a": {"minimum": "3"}}}, {"pattern": "("}]
)
def test_an_invalid_schema_is_a_configuration_error(schema: JsonObject) -> None:
    with pytest.raises(ConfigurationError, match="isn't valid"):
        build_validator(schema)


def test_a_schema_nested_too_deeply_is_a_configuration_error() -> None:
    schema: dict[str, Any] = {}
    for _ in range(10_000):
        schema = {"items": schema}
    with pytest.raises(ConfigurationError):
        build_validator(schema)
