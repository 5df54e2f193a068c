"""How much work a schema of somebody else's can make: bounded before any value is checked against it.

A few definitions that each refer to the next one twice have a validator look at one value a billion times.
What applies to the same value is counted here, through all references; what looks at a value's parts is
bounded by the value.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from app.domain.json_values import JsonObject

MOST_WORK = 10_000
"""Schemas that apply to one value."""
_LONGEST_CHAIN = 100
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_NAMED = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def problem_of_work(schema: JsonObject) -> str | None:
    """Why nobody should be made to check values against it, if nobody should."""
    counted: dict[int, int] = {}
    for part in _parts(schema):
        if part is not schema and isinstance(part.get("$id"), str):
            return 'has an "$id" in one of its parts: put that under "$defs", without "$id"'
        for name in _REFERENCES:
            target = part.get(name)
            if isinstance(target, str) and target != "#" and not target.startswith("#/"):
                return f'refers to {target[:100]!r}: refer to its own parts only, by "#/$defs/…"'
        if _work(part, schema, counted, 0) > MOST_WORK:
            return (
                "refers to the same parts too many times over: checking a value would take for ever"
            )
    return None


def _parts(value: Any) -> Iterator[JsonObject]:
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            yield one
            pending += one.values()
        elif isinstance(one, list):
            pending += one


def _work(part: Any, root: JsonObject, counted: dict[int, int], chain: int) -> int:
    """How many schemas apply to a value of this part; one that leads back to itself is counted once."""
    if not isinstance(part, Mapping):
        return 1
    if id(part) in counted:
        return counted[id(part)]
    if chain > _LONGEST_CHAIN:
        return MOST_WORK + 1
    counted[id(part)] = 1
    below = (_work(one, root, counted, chain + 1) for one in _of_the_same_value(part, root))
    counted[id(part)] = min(1 + sum(below), MOST_WORK + 1)
    return counted[id(part)]


def _of_the_same_value(part: JsonObject, root: JsonObject) -> Iterator[Any]:
    for name in _REFERENCES:
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
