"""Compiles JSON Schemas and checks values. A schema never makes it use the network."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind
from msgspec import Struct

from app.domain.errors import ConfigurationError
from app.domain.json_values import Json, JsonObject
from app.tools.result_limits import MAX_PROBLEM_CHARACTERS, shortened
from app.tools.schemas.value_size import ValueSize, ValueTooLarge, size_of

MAX_WORK = 4_000_000
"""Limit for schema parts times value parts. One comparison takes up to 20 nanoseconds."""
_MAX_WORK_FOR_ALL_PROBLEMS = 40_000
"""The library builds all problems before it returns the first, each with a copy of its value."""
_MAX_WORK_FOR_ONE_PROBLEM = 1_000_000
_PATTERN_WORK = 20
"""The cost of one pattern, for each character of a value."""
_MAX_PROBLEMS = 3
_MAX_PART = 60
_MAX_REASON = 200
_BACKTRACKING = jsonschema_rs.FancyRegexOptions(backtrack_limit=5_000)
"""Patterns of a user's own tools may have look-around and back-references."""


class Validator(Struct, frozen=True):
    compiled: jsonschema_rs.Validator
    schema_values: int
    """Number of the schema's values that one part of a value may be compared with."""
    patterns: int = 0
    is_trusted: bool = True
    """The users wrote the schema themselves: only the value is limited."""

    def problem(self, value: Json) -> str | None:
        """Return what is wrong with a value and where, in a short sentence. None if it fits."""
        try:
            work = self._work(size_of(value))
            if self.compiled.is_valid(value):
                return None
            if work > _MAX_WORK_FOR_ONE_PROBLEM:
                return (
                    "it doesn't fit its schema, and is too large to say where. Send less at a time"
                )
            return shortened("; ".join(self._sentences(value, work)), MAX_PROBLEM_CHARACTERS)
        except ValueTooLarge as error:
            return str(error)
        except ValueError as error:
            return f"not a JSON value: {shortened(str(error), _MAX_PART)}"

    def places(self, value: Json) -> list[tuple[str, str]]:
        """The JSON Pointers of the first wrong parts of a value, each with what is wrong there."""
        try:
            work = self._work(size_of(value))
            if work > _MAX_WORK_FOR_ONE_PROBLEM:
                return []
            return [
                (_pointer(error.instance_path), _reason(error))
                for error in self._errors(value, work)
            ]
        except ValueError:
            return []

    def _work(self, size: ValueSize) -> int:
        work = size.weight * self.schema_values + size.characters * self.patterns * _PATTERN_WORK
        if work > MAX_WORK and not self.is_trusted:
            raise ValueTooLarge("too large for its schema. Send less at a time")
        return work

    def _sentences(self, value: Json, work: int) -> list[str]:
        return [_sentence(error) for error in self._errors(value, work)]

    def _errors(self, value: Json, work: int) -> list[jsonschema_rs.ValidationError]:
        if work <= _MAX_WORK_FOR_ALL_PROBLEMS:
            return list(islice(self.compiled.iter_errors(value), _MAX_PROBLEMS))
        try:
            self.compiled.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


def build_validator(schema: JsonObject) -> Validator:
    """Compile a schema that users have written for their own tools. Raises ConfigurationError."""
    return Validator(compile_schema(schema, _BACKTRACKING), _values_in(schema))


def compile_schema(
    schema: JsonObject,
    pattern_options: jsonschema_rs.FancyRegexOptions | jsonschema_rs.RegexOptions,
) -> jsonschema_rs.Validator:
    """Compile a schema. Raises ConfigurationError if it isn't valid or has external references."""
    try:
        # `mask` removes values, which may be huge or secret, from the messages.
        return jsonschema_rs.validator_for(
            dict(schema), mask="the value", offline=True, pattern_options=pattern_options
        )
    except jsonschema_rs.ValidationError as error:
        if isinstance(error.kind, ValidationErrorKind.Referencing):
            raise ConfigurationError(
                f"the JSON Schema has a reference that can't be used"
                f" ({shortened(error.message, _MAX_REASON)}): nothing is fetched, so put what it refers to"
                f' under "$defs" and refer to it by "#/$defs/…"'
            ) from error
        raise ConfigurationError(f"the JSON Schema isn't valid: {_sentence(error)}") from error
    except ValueError as error:
        raise ConfigurationError(
            f"the JSON Schema isn't valid: {shortened(str(error), _MAX_REASON)}"
        ) from error


def _values_in(schema: JsonObject) -> int:
    count, pending = 0, [schema]
    while pending:
        part: Any = pending.pop()
        count += 1
        if isinstance(part, Mapping):
            count += len(part)
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return count


def _pointer(path: Iterable[str | int]) -> str:
    """A JSON Pointer."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "".join(f"/{shortened(part, _MAX_PART)}" for part in parts)


def with_location(path: Iterable[str | int], complaint: str) -> str:
    """The complaint, prefixed by the place in the value: `items[0].name: …`."""
    place = ""
    for part in path:
        if isinstance(part, int):
            place += f"[{part}]"
        else:
            place += f".{shortened(part, _MAX_PART)}"
    place = shortened(place.removeprefix("."), 2 * _MAX_PART)
    return f"{place}: {complaint}" if place else complaint


def _sentence(error: jsonschema_rs.ValidationError) -> str:
    return with_location(error.instance_path, _reason(error))


def _reason(error: jsonschema_rs.ValidationError) -> str:
    """The library's message. For a union, the messages of its branches, because they are more specific."""
    kind, depth = error.kind, len(error.instance_path)
    if isinstance(kind, ValidationErrorKind.AnyOf | ValidationErrorKind.OneOfNotValid):
        failures = [branch[0] for branch in kind.context if branch][:_MAX_PROBLEMS]
        if failures:
            return ", and ".join(
                with_location(f.instance_path[depth:], _reason(f)) for f in failures
            )
    return shortened(error.message, _MAX_REASON)
