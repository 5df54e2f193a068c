"""How much work a schema of somebody else's can make: bounded before any value is checked against it.

A few definitions that each refer to the next one twice have a validator look at one value a billion times.
What applies to the same value is counted here, through all references; what looks at a value's parts is
counted with the value, in value_work.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from app.domain.json_values import JsonObject
from app.tools.patterns import HARD, LONGEST, cost_of
from app.tools.schema_parts import (
    LONGEST_CHAIN,
    MOST_WORK,
    REFERENCES,
    of_the_same_value,
    times_over,
)

MOST_VALUES = 20_000
"""Of JSON, in all schemas that somebody sends together."""
MOST_PATTERNS = 100
MOST_HARD_PATTERNS = 5
"""Different ones: compiling one that is large takes milliseconds."""


def problem_of_work(schema: JsonObject) -> str | None:
    """Why nobody should be made to check values against it, if nobody should."""
    counted: dict[int, int] = {}
    for part in _parts(schema):
        if part is not schema and isinstance(part.get("$id"), str):
            return 'has an "$id" in one of its parts: put that under "$defs", without "$id"'
        for name in REFERENCES:
            target = part.get(name)
            if isinstance(target, str) and target != "#" and not target.startswith("#/"):
                return f'refers to {target[:100]!r}: refer to its own parts only, by "#/$defs/…"'
        if _work(part, schema, counted, 0) > MOST_WORK:
            return (
                "refers to the same parts too many times over: checking a value would take for ever"
            )
    return None


def problem_of_size(schemas: Any) -> str | None:
    """Why nobody should be made to compile one or more schemas, if nobody should. They may be anything."""
    found: set[str] = set()
    values = 0
    for part in _parts(schemas):
        values += 1 + sum(len(one) if isinstance(one, list) else 1 for one in part.values())
        if values > MOST_VALUES:
            return f"has more than {MOST_VALUES} values in its schemas; describe less"
        if isinstance(part.get("pattern"), str):
            found.add(part["pattern"])
        if isinstance(part.get("patternProperties"), Mapping):
            found.update(part["patternProperties"])
    if len(found) > MOST_PATTERNS:
        return f"has {len(found)} patterns; {MOST_PATTERNS} are allowed"
    if any(len(one) > LONGEST for one in found):
        return f"has a pattern of more than {LONGEST} characters"
    hard = sum(cost_of(one) == HARD for one in found)
    if hard > MOST_HARD_PATTERNS:
        return (
            f"has {hard} patterns that are large or look around; {MOST_HARD_PATTERNS} are allowed"
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
    if chain > LONGEST_CHAIN:
        return MOST_WORK + 1
    counted[id(part)] = 1
    below = (_work(one, root, counted, chain + 1) for one in of_the_same_value(part, root))
    counted[id(part)] = min(1 + times_over(part) * sum(below), MOST_WORK + 1)
    return counted[id(part)]
