"""What checking a value costs is counted before it is done: nobody's schema takes the loop for itself."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.json_values import Json, JsonObject
from app.tools.frontend import problem_of_parameters
from app.tools.patterns import HARD, LONGEST, PLAIN, cost_of
from app.tools.schema_work import MOST_HARD_PATTERNS, MOST_PATTERNS
from app.tools.schemas import build_validator
from app.tools.value_work import MOST_CHECKING, ValueWork

LONGEST_PAUSE = 0.1
TOO_LONG = "checking it would take too long"

TWICE: JsonObject = {
    "type": "object",
    "$ref": "#/$defs/a",
    "$defs": {
        "a": {
            "properties": {"x": {"$ref": "#/$defs/a"}},
            "allOf": [
                {"properties": {"x": {"$ref": "#/$defs/a"}}},
                {"properties": {"x": {"$ref": "#/$defs/a"}}},
            ],
        }
    },
}
"""Looks three times at each property of what it looks at."""

LIST: JsonObject = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["value"],
}


def deep(levels: int, name: str = "x", leaf: Json = None, **beside: Any) -> JsonObject:
    value: dict[str, Any] = {} if leaf is None else {name: leaf}
    for _ in range(levels):
        value = {name: value, **beside}
    return value


def unevaluated(levels: int) -> JsonObject:
    schema: JsonObject = {}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": {"type": "number"}}
    return schema


def each_to_each(parts: int) -> JsonObject:
    to_all = {"allOf": [{"$ref": f"#/$defs/{one}"} for one in range(parts)]}
    return {"$ref": "#/$defs/0", "$defs": {str(one): dict(to_all) for one in range(parts)}}


def quickly(ask: Callable[[], str | None]) -> str | None:
    """What is said, without the loop's having been kept: by this thread's own time, on a busy machine."""
    begun = time.thread_time()
    said = ask()
    assert time.thread_time() - begun < LONGEST_PAUSE
    return said


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TWICE, deep(90)),
        ({"$defs": TWICE["$defs"], "items": {"$ref": "#/$defs/a"}}, [deep(30)] * 50),
        (unevaluated(40), {"a": 1}),
        (each_to_each(12), {}),
        ({"pattern": "(?=.*a)(?=.*b)^(.*)*c$"}, "a" * 100_000),
        ({"items": {"pattern": "^(a|aa)+(?!x)$"}}, ["a" * 50] * 1000),
        ({"propertyNames": {"pattern": "(?=.*a)(?=.*b)^(.*)*c$"}}, {"a" * 100_000: 1}),
        ({"patternProperties": {"(?=.*a)(?=.*b)^(.*)*c$": {}}}, {"a" * 100_000: 1}),
        ({"items": {"enum": [[n] for n in range(5000)]}}, [["x"]] * 5000),
        ({"items": {"type": "object"}}, [{}] * 200_000),
    ],
    ids=lambda one: None,
)
def test_what_would_take_long_is_not_begun(schema: JsonObject, value: Json) -> None:
    said = quickly(lambda: build_validator(schema).problem(value))
    assert said is not None
    assert TOO_LONG in said


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"type": "number"}}, ["x"] * 200_000),
        ({"allOf": [{"required": [f"a{n}"]} for n in range(500)]}, {"b": ["z" * 10] * 20_000}),
        ({"allOf": [{"required": [f"a{n}"]} for n in range(500)]}, {"b": "z" * 1_000_000}),
    ],
    ids=lambda one: None,
)
def test_what_has_too_much_wrong_with_it_is_told_so(schema: JsonObject, value: Json) -> None:
    """Each error has a copy of what it is about, and all are made at once."""
    said = quickly(lambda: build_validator(schema).problem(value))
    assert said is not None
    assert "too large to say where" in said


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TWICE, deep(6)),
        (LIST, deep(40, "next", value=1)["next"] | {"next": None}),
        ({"items": {"type": "number"}}, [1.5] * 200_000),
        ({"type": "string", "pattern": r"^\S+( \S+)*$"}, "word " * 10_000 + "word"),
        ({"pattern": r"^(?!\.)(?!.*\.\.)[\w.+-]+@[\w-]+(\.[\w-]+)+$"}, "ann.bee@mail.example.org"),
        (unevaluated(4), {"a": 1}),
        ({"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}, ["a", 1]),
    ],
    ids=lambda one: None,
)
def test_what_people_write_fits(schema: JsonObject, value: Json) -> None:
    assert quickly(lambda: build_validator(schema).problem(value)) is None


def test_a_long_list_of_records_is_told_what_is_wrong() -> None:
    record = {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}
    validator = build_validator({"type": "array", "items": record})
    records: list[JsonObject] = [{"a": "b", "n": 1}] * 299
    said = quickly(lambda: validator.problem([*records, {"a": 1}]))
    assert said == '[299].a: the value is not of type "string"'


@pytest.mark.parametrize("levels", [0, 1, 5])
def test_looking_twice_costs_twice_on_each_level(levels: int) -> None:
    work = ValueWork(TWICE)
    assert work.of(deep(levels + 1)).checking > 2 * work.of(deep(levels)).checking - 200
    assert work.of(deep(60)).checking < 2 * MOST_CHECKING


@pytest.mark.parametrize(
    ("pattern", "cost"),
    [
        (r"^(a+)+$", PLAIN),
        (r"^[A-Z]{2}\d{4}$", PLAIN),
        (r"^(?=.*\d).+$", HARD),
        (r"^(a)\1$", HARD),
        (r"^\p{L}{1,100}$", HARD),
        ("a" * (LONGEST + 1), HARD),
    ],
)
def test_patterns_that_look_around_or_are_large_cost_more(pattern: str, cost: int) -> None:
    assert cost_of(pattern) == cost


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        ([f"a{n}" for n in range(MOST_PATTERNS + 1)], f"{MOST_PATTERNS} are allowed"),
        ([f"(?=a{n})" for n in range(MOST_HARD_PATTERNS + 1)], "look around"),
        (["a" * (LONGEST + 1)], f"more than {LONGEST} characters"),
    ],
)
def test_a_client_sends_a_bounded_number_of_patterns(patterns: list[str], said: str) -> None:
    by_value: JsonObject = {
        "properties": {f"p{n}": {"pattern": one} for n, one in enumerate(patterns)}
    }
    by_name: JsonObject = {"patternProperties": {one: {} for one in patterns}}
    for schema in (by_value, by_name):
        problem = problem_of_parameters({"type": "object", **schema})
        assert problem is not None
        assert said in problem
    fewer = {"properties": {f"p{n}": {"pattern": "(?=a)"} for n in range(200)}}
    assert problem_of_parameters(fewer) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"p{n}": {} for n in range(100_000)}},
        {"enum": list(range(200_000))},
        {"allOf": [{}] * 100_000},
        {"properties": {f"p{n}": {"pattern": rf"^\p{{L}}{{1,{90 + n}}}$"} for n in range(20)}},
    ],
    ids=lambda one: None,
)
def test_what_would_take_long_to_compile_is_not_compiled(schema: JsonObject) -> None:
    assert quickly(lambda: problem_of_parameters({"type": "object", **schema})) is not None


def test_a_client_s_schema_that_asks_itself_what_is_left_over_is_refused() -> None:
    problem = problem_of_parameters(unevaluated(20))
    assert problem is not None
    assert "too many times over" in problem
