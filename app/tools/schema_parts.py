"""Which schemas within a schema look at the same value as it does: what all counting of work goes by."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from app.domain.json_values import JsonObject

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
LONGEST_CHAIN = 100
MOST_WORK = 5_000
"""Schemas that apply to one value."""
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_NAMED = ("dependentSchemas", "dependencies")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


def of_the_same_value(part: JsonObject, root: JsonObject) -> Iterator[Any]:
    for name in REFERENCES:
        if isinstance(part.get(name), str):
            yield _at(root, part[name])
    for name in _LISTS:
        if isinstance(part.get(name), list):
            yield from part[name]
    for name in _SINGLE:
        if name in part:
            yield part[name]
    for name in _NAMED:
        if isinstance(part.get(name), Mapping):
            yield from part[name].values()


def times_over(part: JsonObject) -> int:
    """How often what looks at the same value does so: to know what was left over, it is asked again."""
    return 3 if any(name in part for name in _UNEVALUATED) else 1


def _at(root: JsonObject, reference: str) -> Any:
    """What a pointer points to; nothing when that isn't there, which the validator has found before."""
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found
