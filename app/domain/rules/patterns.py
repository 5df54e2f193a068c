"""Patterns of rules: which calls they match, by the tool's name and conditions on the arguments."""

import posixpath
from collections.abc import Callable, Mapping
from enum import StrEnum
from math import isnan
from operator import ge, gt, le, lt
from typing import Any, TypeAlias

from msgspec import Struct

from app.domain.json_values import Json, JsonObject, canonical, compact
from app.domain.rules.globs import Glob
from app.domain.rules.linear_regex import MAX_MATCHED_CHARACTERS, LinearRegex

Specificity: TypeAlias = tuple[int, ...]


class Operator(StrEnum):
    EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER = ">"
    AT_LEAST = ">="
    LESS = "<"
    AT_MOST = "<="
    GLOB = "~"
    NOT_GLOB = "!~"
    REGEX = "=~"
    NOT_REGEX = "!=~"


OPPOSITE = {
    Operator.NOT_EQUALS: Operator.EQUALS,
    Operator.NOT_GLOB: Operator.GLOB,
    Operator.NOT_REGEX: Operator.REGEX,
}
ORDERING: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.GREATER: gt,
    Operator.AT_LEAST: ge,
    Operator.LESS: lt,
    Operator.AT_MOST: le,
}


class Arguments:
    """The arguments of one call, with a cache of their texts, because many rules match them.

    With the tool's `schema`, an argument that the call doesn't have counts with its declared default.
    """

    def __init__(self, values: JsonObject, schema: JsonObject | None = None) -> None:
        self.values = values
        self._declared: JsonObject = {} if schema is None else schema.get("properties", {})
        self._has_schema = schema is not None
        defaults = {
            name: each["default"]
            for name, each in self._declared.items()
            if isinstance(each, Mapping) and "default" in each
        }
        self._with_defaults = {**defaults, **values} if defaults else values
        self._texts: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        self._canonical: str | None = None

    def at(self, path: str) -> Any:
        """The value of an argument or of a path into it; `MISSING` or `AMBIGUOUS` if there is no single one."""
        return _at(self._with_defaults, path)

    def may_have(self, path: str) -> bool:
        """Whether the tool declares the argument. Without a schema it may have any."""
        return (
            not self._has_schema or path in self._declared or path.split(".")[0] in self._declared
        )

    def text_of(self, value: Json) -> str:
        if id(value) not in self._texts:
            self._texts[id(value)] = _as_text(value)
        return self._texts[id(value)]

    def path_of(self, value: Json) -> str:
        if id(value) not in self._paths:
            self._paths[id(value)] = _normalized_path(self.text_of(value))
        return self._paths[id(value)]

    def are(self, others: JsonObject) -> bool:
        if self.values != others:
            return False
        # In Python 1 and true are equal; in JSON they aren't.
        if self._canonical is None:
            self._canonical = canonical(self.values)
        return self._canonical == canonical(others)


class Name(Struct, frozen=True):
    """A tool's name: exact, by glob, or by regular expression."""

    text: str
    compiled: Glob | LinearRegex | None = None

    def fits(self, name: str) -> bool:
        if self.compiled is None:
            return name == self.text
        if isinstance(self.compiled, Glob):
            return self.compiled.fits(name)
        return self.compiled.is_found_in(name)

    @property
    def specificity(self) -> Specificity:
        if self.compiled is None:
            return (1, 0)
        return (0, len(_literal_characters(self.compiled.text)))


class Condition(Struct, frozen=True):
    """A condition on one argument."""

    argument: str
    operator: Operator
    value: Json
    compiled: Glob | LinearRegex | None
    position: int
    """Where the condition begins in the text of its pattern."""

    def holds(self, arguments: Arguments) -> bool | None:
        """Whether the condition holds; None if the argument can't be compared with the value.

        An argument that is missing, null or of another type can't be compared, nor a text that is too long
        for an expression.
        """
        found = arguments.at(self.argument)
        if self.value is None:
            return (found is None or found is MISSING) is (self.operator is Operator.EQUALS)
        if found is MISSING or found is AMBIGUOUS or found is None:
            return None
        is_opposite = self.operator in OPPOSITE
        if isinstance(self.compiled, Glob):
            return self.compiled.fits(arguments.path_of(found)) is not is_opposite
        if isinstance(self.compiled, LinearRegex):
            text = arguments.text_of(found)
            if len(text) > MAX_MATCHED_CHARACTERS:
                return None
            return self.compiled.is_found_in(text) is not is_opposite
        if not _are_comparable(found, self.value):
            return None
        compare = ORDERING.get(self.operator)
        return (
            (found == self.value) is not is_opposite
            if compare is None
            else compare(found, self.value)
        )

    @property
    def literals(self) -> int:
        """The number of exact characters. The size of a bound says nothing about how specific it is."""
        return 0 if self.operator in ORDERING else len(_literal_characters(_as_text(self.value)))


class Pattern(Struct, frozen=True):
    """A parsed pattern, with its text."""

    text: str
    name: Name
    argument_glob: str | None = None
    """The text of a glob over the call's only argument."""
    compiled_argument: Glob | None = None
    conditions: tuple[Condition, ...] = ()
    is_glob_quoted: bool = False

    @property
    def has_conditions(self) -> bool:
        return bool(self.conditions) or self.compiled_argument is not None

    def fits(self, name: str, arguments: Arguments, *, loosely: bool) -> bool:
        """Whether the pattern matches a call.

        With `loosely` an uncertain match counts: rules that ask or deny use it, so that calls can't evade
        them. Rules that allow need a certain match. A condition is uncertain if its argument can't be
        compared. A glob without an argument's name is uncertain if the call has none or several.
        """
        if not self.name.fits(name):
            return False
        verdicts = [self._holds(each, arguments) for each in self.conditions]
        if False in verdicts or (None in verdicts and not loosely):
            return False
        if self.compiled_argument is None:
            return True
        if not arguments.values:
            return loosely
        if not loosely and len(arguments.values) != 1:
            return False
        return any(
            self.compiled_argument.fits(arguments.path_of(value))
            for value in arguments.values.values()
        )

    def _holds(self, condition: Condition, arguments: Arguments) -> bool | None:
        """A pattern for several tools isn't about those without the argument."""
        if self.name.compiled is not None and not arguments.may_have(condition.argument):
            return False
        return condition.holds(arguments)

    @property
    def specificity(self) -> Specificity:
        equal = sum(each.operator is Operator.EQUALS for each in self.conditions)
        literals = sum(each.literals for each in self.conditions)
        if self.argument_glob is not None:
            literals += len(_literal_characters(self.argument_glob))
        wholes = int(self.compiled_argument is not None)
        return (*self.name.specificity, equal, len(self.conditions) + wholes, literals)


def _are_comparable(found: Json, value: Json) -> bool:
    """Whether both are texts, numbers or truth values. NaN is no number, and true is none either."""
    if isinstance(value, bool) or isinstance(found, bool):
        return isinstance(value, bool) and isinstance(found, bool)
    if isinstance(value, str):
        return isinstance(found, str)
    return isinstance(found, int) or (isinstance(found, float) and not isnan(found))


MISSING: Any = object()
AMBIGUOUS: Any = object()
"""A dotted name that is both an argument and a path."""


def _at(arguments: JsonObject, path: str) -> Any:
    found: Any = arguments
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return arguments.get(path, MISSING)
        found = found[part]
    return AMBIGUOUS if "." in path and path in arguments else found


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else compact(value)


def _normalized_path(text: str) -> str:
    """The normalized path: `src/../secret` isn't within `src`."""
    return posixpath.normpath(text) if {".", ".."} & set(text.split("/")) else text


_WITHOUT_SPECIAL_CHARACTERS = str.maketrans("", "", r"*?[]^$.|()+\/")


def _literal_characters(text: str) -> str:
    return text.translate(_WITHOUT_SPECIAL_CHARACTERS)
