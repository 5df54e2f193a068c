"""How much work it is to check one value against a schema: counted before it is done.

The validator can't be interrupted, and nothing else runs while it works. Schemas that refer to themselves
twice look at a value's parts twice as often on each of its levels; a long list has many errors, each of
which has a copy of what it is about. So what will be looked at how often is counted first, as far as that
is worth while: the count itself ends at its bound.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.domain.json_values import Json, JsonObject
from app.tools.patterns import PLAIN, cost_of
from app.tools.schema_parts import LONGEST_CHAIN, MOST_WORK, of_the_same_value, times_over

MOST_CHECKING = 500_000
"""Schemas looked at, each about a tenth of a microsecond."""
MOST_TELLING = 100_000
"""Values that errors may copy, each about a microsecond."""
_PER_STEP = 5
"""What the count itself costs for each schema that it comes by."""
_PER_ERROR = 40
_CHARACTERS = 100
"""Characters that are looked at, or copied, in the time of one schema."""
_SILENT = frozenset(
    {"title", "description", "default", "examples", "$comment", "$schema", "$defs", "definitions"}
)
_OF_OTHERS = ("additionalProperties", "unevaluatedProperties")
_OF_ELEMENTS = ("contains", "additionalItems", "unevaluatedItems")


@dataclass(slots=True)
class Cost:
    checking: int = 0
    telling: int = 0
    """What it takes at most to say all that is wrong."""

    @property
    def is_too_much(self) -> bool:
        return self.checking > MOST_CHECKING


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A schema within the schema, as far as it matters to the count."""

    source: JsonObject
    weight: int
    per_character: int
    named: Mapping[str, Any]
    others: tuple[Any, ...]
    names: tuple[Any, ...]
    elements: tuple[Any, ...]
    places: tuple[Any, ...]


_Applied: TypeAlias = dict[int, int]
"""How often which part applies, by its id."""


@dataclass(frozen=True, slots=True)
class _Together:
    """A part and those that it has look at the same value."""

    found: _Applied
    weight: int
    per_character: int
    steps: int
    """What it took to find them."""


class ValueWork:
    """Counts for one schema."""

    def __init__(self, schema: JsonObject) -> None:
        self._root = schema
        self._parts: dict[int, _Part] = {}
        self._found: dict[int, _Together] = {}

    def of(self, value: Json) -> Cost:
        cost = Cost()
        root = {self._known(self._root): 1}
        pending: list[tuple[Sequence[Any], _Applied, int]] = [((value,), root, 0)]
        while pending and not cost.is_too_much:
            siblings, applied, above = pending.pop()
            weight = per_character = 0
            for part, times in applied.items():
                together = self._together(part)
                cost.checking += _PER_STEP * together.steps
                weight += together.weight * times
                per_character += together.per_character * times
            above += weight
            cost.checking += (weight or 1) * len(siblings)
            cost.telling += (_PER_ERROR * weight + above) * len(siblings)
            for one in siblings:
                if isinstance(one, str):
                    cost.checking += len(one) * per_character + len(one) // _CHARACTERS
                    cost.telling += above * len(one) // _CHARACTERS
                elif isinstance(one, dict | list):
                    found = self._all(applied)
                    cost.checking += _PER_STEP * (1 + len(found))
                    if isinstance(one, dict):
                        cost.checking += _PER_STEP * len(found) * len(one)
                        below = self._members(one, found)
                    else:
                        below = self._elements(one, found)
                    pending += ((parts, to, above) for parts, to in below)
                if cost.checking > MOST_CHECKING:
                    break
        return cost

    def _members(
        self, value: dict[str, Any], found: _Applied
    ) -> Iterator[tuple[Sequence[Any], _Applied]]:
        applied: dict[str, _Applied] = {}
        of_names: _Applied = {}
        for id_of_part, times in found.items():
            part = self._parts[id_of_part]
            for schema in part.names:
                self._apply(schema, times, of_names)
            if part.named or part.others:
                for name in value:
                    schemas = (part.named[name],) if name in part.named else part.others
                    for schema in schemas:
                        self._apply(schema, times, applied.setdefault(name, {}))
        if of_names:
            yield tuple(value), of_names
        for name, to in applied.items():
            yield (value[name],), to
        if len(applied) < len(value):
            yield [value[name] for name in value.keys() - applied.keys()], {}

    def _elements(
        self, value: list[Any], found: _Applied
    ) -> Iterator[tuple[Sequence[Any], _Applied]]:
        to_all: _Applied = {}
        for id_of_part, times in found.items():
            part = self._parts[id_of_part]
            for schema in part.elements:
                self._apply(schema, times, to_all)
            for element, schema in zip(value, part.places, strict=False):
                to_one: _Applied = {}
                self._apply(schema, times, to_one)
                yield (element,), to_one
        yield value, to_all

    def _apply(self, schema: Any, times: int, applied: _Applied) -> None:
        if isinstance(schema, Mapping):
            part = self._known(schema)
            applied[part] = applied.get(part, 0) + times

    def _all(self, applied: _Applied) -> _Applied:
        if len(applied) == 1 and 1 in applied.values():
            return self._together(next(iter(applied))).found
        found: _Applied = defaultdict(int)
        for part, times in applied.items():
            for one, each in self._together(part).found.items():
                found[one] += times * each
        return found

    def _together(self, part: int) -> _Together:
        if part not in self._found:
            self._found[part] = self._look(part)
        return self._found[part]

    def _look(self, part: int) -> _Together:
        found: _Applied = defaultdict(int)
        steps = weight = per_character = 0
        pending: list[tuple[int, int, tuple[int, ...]]] = [(part, 1, ())]
        while pending:
            one, times, path = pending.pop()
            known = self._parts[one]
            steps += 1
            found[one] += times
            weight += times * known.weight
            per_character += times * known.per_character
            if steps > MOST_WORK or len(path) > LONGEST_CHAIN:
                weight += MOST_CHECKING
                break
            further = (*path, one)
            for schema in of_the_same_value(known.source, self._root):
                # What leads back to itself for the same value is looked at once.
                if isinstance(schema, Mapping) and (below := self._known(schema)) not in further:
                    pending.append((below, times * times_over(known.source), further))
        return _Together(found, weight, per_character, steps)

    def _known(self, schema: JsonObject) -> int:
        if id(schema) not in self._parts:
            self._parts[id(schema)] = _part(schema)
        return id(schema)


def _part(schema: JsonObject) -> _Part:
    named = schema.get("properties")
    of_patterns = schema.get("patternProperties")
    patterns = of_patterns if isinstance(of_patterns, Mapping) else {}
    items, first = schema.get("items"), schema.get("prefixItems")
    places = items if isinstance(items, list) else first if isinstance(first, list) else ()
    return _Part(
        source=schema,
        weight=max(1, sum(_weight(schema[name]) for name in schema.keys() - _SILENT)),
        per_character=_per_character(schema),
        named=named if isinstance(named, Mapping) else {},
        others=(*_schemas(schema, _OF_OTHERS), *patterns.values()),
        names=(*_schemas(schema, ("propertyNames",)), *({"pattern": one} for one in patterns)),
        elements=_schemas(schema, ("items", *_OF_ELEMENTS)),
        places=tuple(places),
    )


def _weight(keyword: Any) -> int:
    """Keywords that list something look at all of it."""
    return len(keyword) if isinstance(keyword, list | Mapping) else 1


def _per_character(schema: JsonObject) -> int:
    pattern = schema.get("pattern")
    matched = cost_of(pattern) if isinstance(pattern, str) else 0
    return matched + (PLAIN if "format" in schema else 0)


def _schemas(schema: JsonObject, names: Sequence[str]) -> tuple[JsonObject, ...]:
    return tuple(schema[name] for name in names if isinstance(schema.get(name), Mapping))
