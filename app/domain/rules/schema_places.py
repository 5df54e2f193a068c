"""Finds an argument, or a path into one, in the JSON Schema of a tool's arguments."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.domain.json_values import JsonObject

_MAX_DEPTH = 20
_ANYTHING: JsonObject = {}


def find_in_schema(schema: JsonObject, path: str) -> list[JsonObject]:
    """The schemas that a value at this path may have. None if the schema declares no such path."""
    if path in schema.get("properties", {}):
        return list(_variants(schema["properties"][path], schema, 0))
    return _find(schema, path.split("."), schema)


def _find(schema: Any, parts: Sequence[str], root: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = []
    for variant in _variants(schema, root, 0):
        if not parts:
            found.append(variant)
            continue
        if "type" in variant and "object" not in types_of(variant):
            continue
        declared = variant.get("properties")
        if isinstance(declared, Mapping) and parts[0] in declared:
            found += _find(declared[parts[0]], parts[1:], root)
            continue
        others = variant.get("additionalProperties", not declared)
        if isinstance(others, Mapping):
            found += _find(others, parts[1:], root)
        elif others or "patternProperties" in variant:
            found.append(_ANYTHING)
    return found


def _variants(schema: Any, root: JsonObject, depth: int) -> Iterator[JsonObject]:
    """The alternatives of a schema, with references resolved; `{}` where they can't be determined."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        if schema is not False:
            yield _ANYTHING
        return
    if "$ref" in schema:
        yield from _variants(_referenced(str(schema["$ref"]), root), root, depth + 1)
    elif alternatives := schema.get("anyOf") or schema.get("oneOf"):
        for each in alternatives:
            yield from _variants(each, root, depth + 1)
    elif "allOf" in schema:
        every = schema["allOf"]
        yield from _variants(every[0] if len(every) == 1 else True, root, depth + 1)
    else:
        yield schema


def _referenced(reference: str, root: JsonObject) -> Any:
    """The schema at a JSON pointer, `#` for the root; `True`, which permits anything, if there is none."""
    place: Any = root
    if reference == "#":
        return place
    if not reference.startswith("#/"):
        return True
    for part in reference.removeprefix("#/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(place, Mapping) or name not in place:
            return True
        place = place[name]
    return place


def types_of(schema: JsonObject) -> Sequence[str]:
    """The JSON types of a schema; none if it doesn't say."""
    named = schema.get("type", ())
    return (named,) if isinstance(named, str) else tuple(named)
