"""Arguments, and paths into them, in the JSON Schema of a tool."""

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.json_values import JsonObject
from app.domain.rules.schema_places import find_in_schema, types_of

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
ANYTHING: JsonObject = {}


def having(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties}


NODE = {"$ref": "#/$defs/Node"}
NODES = {**having(a=NODE), "$defs": {"Node": having(next=NODE, value=TEXT)}}


@pytest.mark.parametrize(
    "schema, path, found",
    [
        (having(a=TEXT), "a", [TEXT]),
        (having(a=TEXT), "b", []),
        (having(a=having(b=TEXT)), "a.b", [TEXT]),
        (having(a=having(b=TEXT)), "a.c", []),
        (having(**{"a.b": NUMBER}), "a.b", [NUMBER]),
        (having(a=TEXT), "a.b", []),
        (having(a=ANYTHING), "a", [ANYTHING]),
        (having(a=ANYTHING), "a.b.c", [ANYTHING]),
        (having(a={"type": ["object", "null"], "properties": {"b": TEXT}}), "a.b", [TEXT]),
        ({"type": "object"}, "a", [ANYTHING]),
        ({"type": "object", "additionalProperties": False}, "a", []),
        ({"type": "object", "additionalProperties": TEXT}, "a", [TEXT]),
        ({**having(a=TEXT), "additionalProperties": True}, "b", [ANYTHING]),
        ({**having(a=TEXT), "additionalProperties": True}, "a", [TEXT]),
        ({**having(a=TEXT), "additionalProperties": NUMBER}, "b", [NUMBER]),
        ({**having(a=TEXT), "patternProperties": {"^x": NUMBER}}, "x1", [ANYTHING]),
        (having(a={"anyOf": [TEXT, NUMBER]}), "a", [TEXT, NUMBER]),
        (having(a={"oneOf": [TEXT, NUMBER]}), "a", [TEXT, NUMBER]),
        (having(a={"anyOf": [TEXT, having(b=NUMBER)]}), "a.b", [NUMBER]),
        (having(a={"anyOf": [having(b=TEXT), having(b=NUMBER)]}), "a.b", [TEXT, NUMBER]),
        (having(a=having(b={"anyOf": [TEXT, NUMBER]})), "a.b", [TEXT, NUMBER]),
        (having(a={"additionalProperties": having(b=TEXT)}), "a.x.b", [TEXT]),
        (having(a={"anyOf": [False, TEXT]}), "a", [TEXT]),
        (having(a=True), "a", [ANYTHING]),
        (having(a=False), "a", []),
        (having(a={"allOf": [TEXT]}), "a", [TEXT]),
        (having(a={"allOf": [TEXT, NUMBER]}), "a", [ANYTHING]),
        ({**having(a={"$ref": "#/$defs/T"}), "$defs": {"T": TEXT}}, "a", [TEXT]),
        ({**having(a={"$ref": "#/$defs/T"}), "$defs": {}}, "a", [ANYTHING]),
        (NODES, "a.next.next.value", [TEXT]),
        (having(a={"$ref": "#/properties/a"}), "a", [ANYTHING]),
        (having(next={"$ref": "#"}, value=TEXT), "next.next.value", [TEXT]),
        (having(next={"$ref": "#"}, value=TEXT), "next.other", []),
        (having(a={"$ref": "#value"}, value=TEXT), "a", [ANYTHING]),
        (having(a={"$ref": "other.json"}, value=TEXT), "a", [ANYTHING]),
        ({**having(a={"$ref": "#/$defs/x~1y~0z"}), "$defs": {"x/y~z": TEXT}}, "a", [TEXT]),
    ],
)
def test_a_path_has_the_schemas_that_its_value_may_have(
    schema: JsonObject, path: str, found: list[JsonObject]
) -> None:
    assert find_in_schema(schema, path) == found


def nested(schema: JsonObject, times: int, wrap: Callable[[JsonObject], JsonObject]) -> JsonObject:
    for _ in range(times):
        schema = wrap(schema)
    return schema


def chained(times: int) -> JsonObject:
    """A schema with so many references in a row."""
    links = {f"S{n}": {"$ref": f"#/$defs/S{n + 1}"} for n in range(1, times)}
    return {**having(a={"$ref": "#/$defs/S1"}), "$defs": {**links, f"S{times}": TEXT}}


@pytest.mark.parametrize("times, found", [(20, TEXT), (21, ANYTHING)])
def test_twenty_schemas_within_each_other_are_read(times: int, found: JsonObject) -> None:
    assert find_in_schema(chained(times), "a") == [found]
    for kind in ("anyOf", "oneOf", "allOf"):

        def wrap(inner: JsonObject, kind: str = kind) -> JsonObject:
            return {kind: [inner]}

        assert find_in_schema(having(a=nested(TEXT, times, wrap)), "a") == [found]
        assert find_in_schema(nested(having(a=TEXT), times, wrap), "a") == [found]


def test_a_schema_names_one_type_or_several_or_none() -> None:
    assert types_of(TEXT) == ("string",)
    assert types_of({"type": ["string", "null"]}) == ("string", "null")
    assert types_of({}) == ()
