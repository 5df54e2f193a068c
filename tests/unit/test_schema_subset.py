"""The subset of JSON Schema that clients may send: what is refused, and that checks are bounded."""

from functools import partial
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.domain.json_values import Json, JsonObject
from app.tools.frontend import problem_of_parameters
from app.tools.schemas.subset import (
    MAX_DEPTH,
    MAX_PATTERN_CHARACTERS,
    MAX_SIZE,
    MAX_SIZE_TOGETHER,
    problem_of_size,
    subset_validator,
)
from app.tools.schemas.value_size import MAX_VALUES
from tests.support.work_ratio import within_a_pause

ORDER: JsonObject = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "title": "Order",
    "properties": {
        "kind": {"enum": ["new", "again", None, 3]},
        "email": {"type": "string", "format": "email", "pattern": r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$"},
        "lines": {
            "type": "array",
            "items": {"$ref": "#/$defs/Line"},
            "minItems": 1,
            "maxItems": 100,
            "uniqueItems": True,
        },
        "ship": {
            "oneOf": [
                {"type": "null"},
                {"properties": {"by": {"const": "air"}}, "required": ["by"]},
                {"$ref": "#/definitions/By~1sea"},
            ]
        },
        "point": {"items": [{"type": "number"}, {"type": "number"}], "additionalItems": False},
        "pattern": {"type": "string"},
        "unevaluatedItems": {"type": "string"},
    },
    "patternProperties": {"^x-": True},
    "additionalProperties": False,
    "if": {"required": ["ship"]},
    "then": {"required": ["email"]},
    "$defs": {
        "Line": {
            "properties": {"price": {"$ref": "#/$defs/Money"}, "sum": {"$ref": "#/$defs/Money"}}
        },
        "Money": {"type": "number", "multipleOf": 0.01, "minimum": 0},
    },
    "definitions": {"By/sea": {"properties": {"by": {"const": "sea"}}, "required": ["by"]}},
}


def nested(levels: int, keyword: str = "items") -> JsonObject:
    schema: JsonObject = {}
    for _ in range(levels):
        schema = {keyword: schema}
    return schema


def doubling(times: int, keyword: str = "allOf") -> JsonObject:
    """Each definition refers to the one before it twice."""
    definitions: dict[str, Any] = {"a0": {"type": "object"}}
    for n in range(1, times + 1):
        definitions[f"a{n}"] = {keyword: [{"$ref": f"#/$defs/a{n - 1}"}] * 2}
    return {"type": "object", "$defs": definitions, "$ref": f"#/$defs/a{times}"}


def test_common_schemas_are_supported() -> None:
    validator = subset_validator(ORDER)
    line: JsonObject = {"price": 1.25, "sum": 2.5}
    order: JsonObject = {
        "kind": "new",
        "email": "ann@mail.example.org",
        "lines": [line],
        "ship": {"by": "sea"},
    }
    assert validator.problem({**order, "point": [1, 2], "x-note": []}) is None
    assert validator.problem({**order, "kind": "old"}) == (
        'kind: the value is not one of "new", "again" or 2 other candidates'
    )
    assert "lines[0].sum" in (validator.problem({"lines": [{"sum": -1}]}) or "")
    assert problem_of_parameters(doubling(5)) is None


@pytest.mark.parametrize(
    ("schema", "place", "message"),
    [
        ({"unevaluatedProperties": False}, "unevaluatedProperties", "additionalProperties"),
        ({"properties": {"a": {"unevaluatedItems": False}}}, "properties.a.unevaluatedItems", ""),
        ({"$dynamicRef": "#a"}, "$dynamicRef", "isn't supported"),
        ({"$defs": {"a": {"$anchor": "it"}}}, "$defs.a.$anchor", "isn't supported"),
        ({"items": {"$id": "it"}}, "items.$id", "beginning of the schema"),
        ({"items": {"$defs": {}}}, "items.$defs", "beginning of the schema"),
        ({"nullable": True}, "nullable", "isn't supported"),
        ({"contentMediaType": "application/json"}, "contentMediaType", "isn't supported"),
        ({"$ref": "https://example.org/a"}, "$ref", '"#/$defs/…"'),
        ({"$ref": "#/properties/a", "properties": {"a": {}}}, "$ref", '"#/$defs/…"'),
        ({"$ref": "#/$defs/a/items", "$defs": {"a": {"items": {}}}}, "$ref", '"#/$defs/…"'),
        ({"$ref": "#/$defs/missing", "$defs": {}}, "$ref", '"#/$defs/…"'),
        ({"items": {"$ref": "#"}}, "items.$ref", '"#/$defs/…"'),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, "$defs.a.items.$ref", "to itself"),
        (
            {"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"not": {"$ref": "#/$defs/a"}}}},
            "$defs.b.not.$ref",
            "to itself",
        ),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, "properties.a.pattern", "look-around"),
        ({"pattern": r"(a)\1"}, "pattern", "back-references"),
        ({"pattern": "(a{100}){100}"}, "pattern", "small"),
        ({"pattern": "a" * (MAX_PATTERN_CHARACTERS + 1)}, "pattern", "more than"),
        ({"patternProperties": {"(?=a)": {}}}, "patternProperties", "look-around"),
        ({"enum": [{"a": 1}]}, "enum", "lists or objects"),
        ({"const": []}, "const", "lists or objects"),
        ({"multipleOf": 5e-324}, "multipleOf", "from 1e-9"),
        (nested(MAX_DEPTH + 1), "items", f"deeper than {MAX_DEPTH}"),
        (doubling(12), "allOf", f"more than {MAX_SIZE} values"),
        (doubling(40, "anyOf"), "$defs.a", f"deeper than {MAX_DEPTH}"),
    ],
)
def test_a_refused_keyword_is_named_with_its_path(
    schema: JsonObject, place: str, message: str
) -> None:
    problem = within_a_pause(lambda: problem_of_parameters({"type": "object", **schema}))
    assert problem is not None
    assert place in problem
    assert message in problem


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"p{n}": {} for n in range(100_000)}},
        {"enum": list(range(200_000))},
        {"allOf": [{}] * 100_000},
        {"$defs": {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(2400)} | {"a2400": {}}},
        {"properties": {f"p{n}": {"pattern": f"a[ab]{{{n}}}"} for n in range(110)}},
        {"default": nested(5000)},
        nested(200),
    ],
    ids=range(7),
)
def test_a_schema_that_would_take_long_to_compile_is_refused(schema: JsonObject) -> None:
    assert within_a_pause(lambda: problem_of_parameters({"type": "object", **schema})) is not None


def test_the_schemas_of_one_request_are_bounded_together() -> None:
    tools: list[JsonObject] = [{"parameters": {"enum": list(range(MAX_SIZE - 100))}}] * 3
    assert problem_of_size(tools[:1]) is None
    problem = within_a_pause(lambda: problem_of_size(tools))
    assert f"more than {MAX_SIZE_TOGETHER} values" in str(problem)
    assert problem_of_size("no list at all") is None


def test_the_largest_schemas_are_compiled_within_the_allowed_pause() -> None:
    patterns = {f"p{n}": {"pattern": f"a[ab]{{{n + 10}}}[^ab]"} for n in range(90)}
    each_half = [{"properties": dict(list(patterns.items())[:45])}, {"properties": patterns}]
    for schema in (
        {"properties": {f"p{n}": {"type": "string"} for n in range(1200)}},
        {"properties": dict(list(patterns.items())[:70])},
        doubling(9),
    ):
        assert within_a_pause(partial(problem_of_parameters, schema)) is None
    assert problem_of_size(each_half) is None


def wide(schema: JsonObject, times: int) -> JsonObject:
    return {"type": "array", "items": {"allOf": [schema] * times}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"uniqueItems": True}, [10**30 + n for n in range(10_000)]),
        ({"uniqueItems": True}, [10**20 + n for n in range(150)]),
        ({"items": wide({"uniqueItems": True}, 800)}, [[[2**64 + n for n in range(60)]]]),
        ({"uniqueItems": True}, [{"a": [n, {"b": str(n)}]} for n in range(10_000)]),
        (wide({"type": "integer"}, 1000), list(range(1300))),
        (wide({"type": "integer"}, 1000), list(range(90_000))),
        (wide({"properties": {"a": {"type": "integer"}}}, 700), [{"a": 1}] * 480),
        (wide({"maxLength": 10**7}, 1000), ["é" * 90_000] * 2),
        (wide({"multipleOf": 1e-9}, 80), [1e308 + n for n in range(1000)]),
        (wide({"multipleOf": 0.01}, 80), [12.34] * 900),
        (wide({"const": 1.5}, 80), [1.5] * 900),
        ({"items": {"enum": [*map(str, range(2000)), 1, None]}}, ["1999"] * 1900),
        ({"items": {"enum": [*range(900), "a"]}}, [899] * 880),
        ({"items": {"enum": [*(n + 0.5 for n in range(90)), "a"]}}, [89.5] * 800),
        ({"items": {"enum": [*(n + 10**20 for n in range(7)), "a"]}}, [10**20 + 6] * 140),
        ({"items": {"pattern": "a[ab]{90}[^ab]"}}, ["abbab" * 400] * 90),
        ({"items": {"pattern": "(a+)+$"}}, ["a" * 100_000 + "b"]),
        (wide({"pattern": r"^\w+\s[ab]*!"}, 20), ["word " * 2000]),
        ({"propertyNames": {"pattern": "a[ab]{90}[^ab]"}}, {"abbab" * 36_000: 1}),
        ({"contains": {"const": -1}, "minContains": 3}, list(range(90_000))),
        ({"items": {"type": "array"}}, [[[]] * 300] * 300),
        ({"items": {"oneOf": [{"required": [f"a{n}"]} for n in range(400)]}}, [{"a": 1}] * 500),
        ({"allOf": [{"required": [f"a{n}"]} for n in range(500)]}, {"b": ["z" * 10] * 2_000}),
        ({"allOf": [{"required": [f"a{n}"]} for n in range(500)]}, {"b": "z" * 1_000_000}),
        ({"items": {"type": "string"}}, list(range(100_000))),
        ({"items": {"type": "string"}}, list(range(5_000))),
        ({"format": "regex"}, "(a{100}){100}"),
    ],
    ids=range(27),
)
def test_a_value_is_checked_within_the_allowed_pause(schema: JsonObject, value: Json) -> None:
    for whole in (schema, {"$schema": "http://json-schema.org/draft-07/schema#", **schema}):
        validator = subset_validator(whole)
        within_a_pause(partial(validator.problem, value))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([10**30 + n for n in range(1000)], "integers beyond 64 bits"),
        (list(range(MAX_VALUES)), f"more than {MAX_VALUES} values"),
        ([1] * 90_000, "too large for its schema"),
        (["a"] * 5_000, "is too large to say where"),
        (["a"] * 700, "[0]: the value is not of type"),
    ],
)
def test_a_value_that_is_too_large_to_check_is_an_error(value: Json, message: str) -> None:
    validator = subset_validator(wide({"type": "integer"}, 100))
    assert message in (validator.problem(value) or "")


def test_a_schema_of_bounded_depth_may_repeat_a_definition() -> None:
    leaf: JsonObject = {"type": "object", "properties": {"name": {"type": "string"}}}
    parent = {"properties": {"left": {"$ref": "#/$defs/leaf"}, "right": {"$ref": "#/$defs/leaf"}}}
    schema = {"$ref": "#/$defs/parent", "$defs": {"leaf": leaf, "parent": parent}}
    assert "left.name" in (subset_validator(schema).problem({"left": {"name": 1}}) or "")


@pytest.mark.parametrize(
    "wrong", [{"type": "objekt"}, {"allOf": {}}, {"pattern": 5}, {"properties": []}, {"items": 1}]
)
def test_an_invalid_schema_is_refused(wrong: JsonObject) -> None:
    with pytest.raises(ConfigurationError):
        subset_validator(wrong)
