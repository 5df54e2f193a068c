"""The subset of JSON Schema that clients may send. A check against it takes bounded time.

The validator can't be interrupted and blocks the event loop. So a client's schema can't examine one part of a
value repeatedly: no recursion, no `unevaluated…`, no pattern that needs backtracking. Then each value takes
at most as many steps as the schema has values. The check of a value limits that product.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
from msgspec import Struct

from app.domain.errors import ConfigurationError
from app.domain.json_values import JsonObject
from app.tools.schemas.validate import Validator, compile_schema
from app.tools.schemas.value_size import ValueTooLarge, size_of

MAX_DEPTH = 30
MAX_SIZE = 5_000
"""Maximum JSON values of one schema, where each `$ref` counts as its target."""
MAX_SIZE_TOGETHER = 10_000
"""Maximum JSON values of all schemas of one request. Compiling a value takes microseconds."""
MAX_PATTERN_CHARACTERS = 500

_PATTERN_OPTIONS = jsonschema_rs.RegexOptions(size_limit=1 << 14)
_SIZE_OF_A_PATTERN = 50
"""The cost of compiling one pattern, in values."""
_SIZE_OF_AN_EXACT_NUMBER = 50
"""The validator compares and divides these with exact fractions."""
_SIZE_OF_A_CHOICE: Mapping[type, int] = {int: 4, float: _SIZE_OF_AN_EXACT_NUMBER}
_DEFINITIONS = ("$defs", "definitions")
_LISTS_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_SCHEMAS = frozenset(
    """not if then else items additionalItems contains additionalProperties propertyNames""".split()
)
_SIMPLE = frozenset(
    """type enum const format pattern minLength maxLength minimum maximum exclusiveMinimum
    exclusiveMaximum multipleOf required minProperties maxProperties dependentRequired
    minItems maxItems uniqueItems minContains maxContains
    title description default examples deprecated readOnly writeOnly $comment""".split()
)
_AT_THE_ROOT = frozenset({"$schema", "$id", *_DEFINITIONS})
KEYWORDS = _LISTS_OF_SCHEMAS | _NAMED_SCHEMAS | _SCHEMAS | _SIMPLE | _AT_THE_ROOT | {"$ref"}


class UnsupportedSchema(ConfigurationError):
    """A schema outside of the subset. The message names the keyword and its place."""


class SchemaSize(Struct, frozen=True):
    values: int = 0
    patterns: int = 0
    depth: int = 0

    def plus(self, part: "SchemaSize") -> "SchemaSize":
        return SchemaSize(
            self.values + part.values, self.patterns + part.patterns, max(self.depth, part.depth)
        )


def subset_validator(schema: JsonObject) -> Validator:
    """Build a validator of bounded work. Raises ConfigurationError with a sentence for the client."""
    _check_size(schema, MAX_SIZE)
    size = _SchemaMeasurement(schema).of_root()
    compiled = compile_schema(schema, _PATTERN_OPTIONS)
    return Validator(compiled, size.values, size.patterns, is_trusted=False)


def problem_of_schema(schema: JsonObject) -> str | None:
    """Return why a client's schema can't be used, or None."""
    try:
        subset_validator(schema)
    except ConfigurationError as error:
        return str(error)
    return None


def problem_of_size(schemas: Any) -> str | None:
    """Return why one request's schemas are too large to compile, or None. They may be any JSON."""
    try:
        _check_size(schemas, MAX_SIZE_TOGETHER)
    except UnsupportedSchema as error:
        return str(error)
    return None


def _check_size(schemas: Any, limit: int) -> None:
    try:
        size = size_of(schemas)
    except ValueTooLarge as error:
        raise UnsupportedSchema(f"the JSON Schema can't be used: {error}") from error
    if size.values + _SIZE_OF_A_PATTERN * _patterns_in(schemas) > limit:
        raise UnsupportedSchema(
            f"the JSON Schema has more than {limit} values (a pattern counts as {_SIZE_OF_A_PATTERN});"
            " describe less"
        )


def _patterns_in(schemas: Any) -> int:
    """An upper bound for the number of patterns: also counts keys that only look like patterns."""
    patterns, pending = 0, [schemas]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            named = one.get("patternProperties")
            patterns += ("pattern" in one) + (len(named) if isinstance(named, Mapping) else 0)
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return patterns


class _SchemaMeasurement:
    """Checks a schema, keyword by keyword, and counts the steps that one value may take."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._definitions: dict[str, SchemaSize | None] = {}
        """By place in the schema; None while the definition is being measured."""

    def of_root(self) -> SchemaSize:
        size = self._of(self._root, "", 0)
        for name in _DEFINITIONS:
            definitions = self._root.get(name)
            for key in definitions if isinstance(definitions, Mapping) else ():
                self._of_definition(name, key, name, 1)
        return size

    def _of(self, schema: Any, place: str, depth: int) -> SchemaSize:
        if not isinstance(schema, Mapping):
            return SchemaSize(1)
        if depth > MAX_DEPTH:
            raise _unsupported(place, f"is nested deeper than {MAX_DEPTH} levels")
        size = SchemaSize(1)
        for keyword, value in schema.items():
            at = f"{place}.{keyword}" if place else keyword
            if keyword not in KEYWORDS or (keyword in _AT_THE_ROOT and depth):
                raise _unsupported(at, "isn't supported" + _remedy(keyword))
            size = size.plus(SchemaSize(1))
            for part in self._of_keyword(keyword, value, at, depth):
                size = size.plus(SchemaSize(part.values, part.patterns, part.depth + 1))
            if size.values > MAX_SIZE:
                raise _unsupported(
                    at, f"makes it more than {MAX_SIZE} values, with what it refers to"
                )
            if depth + size.depth > MAX_DEPTH:
                raise _unsupported(at, f"is nested deeper than {MAX_DEPTH} levels")
        return size

    def _of_keyword(self, keyword: str, value: Any, at: str, depth: int) -> Iterator[SchemaSize]:
        if keyword == "$ref":
            yield self._of_reference(value, at, depth + 1)
        elif keyword in _LISTS_OF_SCHEMAS and isinstance(value, list):
            for n, part in enumerate(value):
                yield self._of(part, f"{at}[{n}]", depth + 1)
        elif keyword in _SCHEMAS:
            yield self._of(value, at, depth + 1)
        elif keyword in _NAMED_SCHEMAS and isinstance(value, Mapping):
            for name, part in value.items():
                if keyword == "patternProperties":
                    yield _of_pattern(name, at)
                yield self._of(part, f"{at}.{name}", depth + 1)
        elif keyword == "pattern":
            yield _of_pattern(value, at)
        elif keyword not in _DEFINITIONS:
            yield _of_simple(keyword, value, at)

    def _of_reference(self, reference: Any, at: str, depth: int) -> SchemaSize:
        steps = str(reference).split("/")
        name, key = steps[1:] if len(steps) == 3 and steps[0] == "#" else ("", "")
        key = unquote(key).replace("~1", "/").replace("~0", "~")
        definitions = self._root.get(name) if name in _DEFINITIONS else None
        if not isinstance(definitions, Mapping) or key not in definitions:
            raise _unsupported(at, 'has to refer to "#/$defs/…", to a definition that is there')
        return self._of_definition(name, key, at, depth)

    def _of_definition(self, name: str, key: str, at: str, depth: int) -> SchemaSize:
        place = f"{name}.{key}"
        if place not in self._definitions:
            self._definitions[place] = None
            self._definitions[place] = self._of(self._root[name][key], place, depth)
        size = self._definitions[place]
        if size is None:
            raise _unsupported(at, "makes the schema refer to itself: describe a bounded depth")
        return size


def _of_pattern(pattern: Any, at: str) -> SchemaSize:
    if isinstance(pattern, str):
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            raise _unsupported(at, f"has more than {MAX_PATTERN_CHARACTERS} characters")
        if not _is_linear(pattern):
            raise _unsupported(
                at,
                "isn't a regular expression that can be used: it has to be closed and small, without"
                " look-around and back-references",
            )
    return SchemaSize(values=1, patterns=1)


@lru_cache(maxsize=1000)
def _is_linear(pattern: str) -> bool:
    try:
        jsonschema_rs.validator_for(
            {"pattern": pattern}, pattern_options=_PATTERN_OPTIONS, offline=True
        )
    except ValueError:
        return False
    return True


def _of_simple(keyword: str, value: Any, at: str) -> SchemaSize:
    if keyword in ("enum", "const"):
        choices = value if keyword == "enum" and isinstance(value, list) else [value]
        if any(isinstance(one, dict | list) for one in choices):
            raise _unsupported(at, "isn't supported with lists or objects: name texts or numbers")
        numbers = sum(_SIZE_OF_A_CHOICE.get(type(one), 0) for one in choices)
        return SchemaSize(size_of(choices).weight + numbers)
    if keyword == "multipleOf" and isinstance(value, int | float):
        if not 1e-9 <= value <= 1e15:
            raise _unsupported(at, "has to be from 1e-9 to 1e15")
        return SchemaSize(_SIZE_OF_AN_EXACT_NUMBER)
    return SchemaSize(size_of(value).weight)


def _remedy(keyword: str) -> str:
    if keyword in _AT_THE_ROOT:
        return " inside of a part: put it at the beginning of the schema"
    if keyword.startswith("unevaluated"):
        return ': use "additionalProperties" or "items"'
    return ": leave it out"


def _unsupported(at: str, why: str) -> UnsupportedSchema:
    place = at if len(at) <= 200 else f"{at[:100]}…{at[-99:]}"
    return UnsupportedSchema(f"the JSON Schema can't be used: {place or 'it'} {why}")
