"""JSON Schemas that were written elsewhere: compiled once, without ever touching the network."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind

from app.domain.errors import ConfigurationError
from app.domain.json_values import Json, JsonObject
from app.tools import patterns
from app.tools.bounds import MAX_COMPLAINT_CHARACTERS, shortened
from app.tools.schema_work import problem_of_size, problem_of_work
from app.tools.value_work import MOST_TELLING, ValueWork

_MAX_DEPTH = 100
_MAX_PROBLEMS = 3
_MAX_PART = 60
_MAX_REASON = 200


@dataclass(frozen=True, slots=True)
class Validator:
    compiled: jsonschema_rs.Validator
    work: ValueWork

    def problem(self, value: Json) -> str | None:
        """What is wrong with a value and where, in a short sentence; None when it fits."""
        if _is_deeper_than(_MAX_DEPTH, value):
            # The validator recurses natively: far deeper values would overflow its stack.
            return f"nested deeper than {_MAX_DEPTH} levels"
        cost = self.work.of(value)
        if cost.is_too_much:
            return "too large for its schema: checking it would take too long. Send less at a time"
        try:
            if self.compiled.is_valid(value):
                return None
            if cost.telling > MOST_TELLING:
                return (
                    "it doesn't fit its schema, and is too large to say where. Send less at a time"
                )
            # All of its errors are made before the first is handed out.
            errors = list(islice(self.compiled.iter_errors(value), _MAX_PROBLEMS))
        except ValueError as error:
            return f"not a JSON value: {shortened(str(error), _MAX_PART)}"
        return shortened("; ".join(_sentence(error) for error in errors), MAX_COMPLAINT_CHARACTERS)


def build_validator(schema: JsonObject) -> Validator:
    """Compile a schema. One that isn't valid or points outside of itself is a ConfigurationError."""
    try:
        # `mask` keeps the values, which may be huge or secret, out of the messages.
        compiled = jsonschema_rs.validator_for(
            dict(schema), mask="the value", offline=True, pattern_options=patterns.OPTIONS
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
    return Validator(compiled, ValueWork(schema))


def schema_problem(schema: JsonObject) -> str | None:
    """Why no value should be checked against a schema: it isn't one, or checking takes too long."""
    if (problem := problem_of_size(schema)) is not None:
        return problem
    try:
        build_validator(schema)
    except ConfigurationError as error:
        return str(error)
    return problem_of_work(schema)


def located(path: Iterable[str | int], complaint: str) -> str:
    """A complaint with the place in the value that it is about: `items[0].name: …`."""
    place = ""
    for part in path:
        if isinstance(part, int):
            place += f"[{part}]"
        else:
            place += f".{shortened(part, _MAX_PART)}"
    place = shortened(place.removeprefix("."), 2 * _MAX_PART)
    return f"{place}: {complaint}" if place else complaint


def _sentence(error: jsonschema_rs.ValidationError) -> str:
    return located(error.instance_path, _reason(error))


def _reason(error: jsonschema_rs.ValidationError) -> str:
    """The library's message, except that of a union: there each branch's own says much more."""
    kind, depth = error.kind, len(error.instance_path)
    if isinstance(kind, ValidationErrorKind.AnyOf | ValidationErrorKind.OneOfNotValid):
        failures = [branch[0] for branch in kind.context if branch][:_MAX_PROBLEMS]
        if failures:
            return ", and ".join(located(f.instance_path[depth:], _reason(f)) for f in failures)
    return shortened(error.message, _MAX_REASON)


def _is_deeper_than(limit: int, value: Any) -> bool:
    level = [value]
    for _ in range(limit):
        children = (
            item.values() if isinstance(item, dict) else item
            for item in level
            if isinstance(item, dict | list)
        )
        level = [child for each in children for child in each if isinstance(child, dict | list)]
        if not level:
            return False
    return True
