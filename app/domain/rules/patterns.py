"""Which calls a rule's pattern means: a tool's name, and what must hold of the arguments."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from app.domain.json_values import Json, JsonObject, canonical, compact
from app.domain.rules.globs import Glob
from app.domain.rules.linear_regex import MAX_MATCHED_CHARACTERS, LinearRegex

Specificity: TypeAlias = tuple[int, ...]


class Operator(StrEnum):
    EQUALS = "="
    GLOB = "~"
    REGEX = "=~"
    NOT_EQUALS = "!="
    NOT_GLOB = "!~"
    NOT_REGEX = "!=~"


OPPOSITE = {
    Operator.NOT_EQUALS: Operator.EQUALS,
    Operator.NOT_GLOB: Operator.GLOB,
    Operator.NOT_REGEX: Operator.REGEX,
}


class Arguments:
    """The arguments of one call, and their texts, which many rules match: each text is made once."""

    def __init__(self, values: JsonObject) -> None:
        self.values = values
        self._texts: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        self._canonical: str | None = None

    def text_of(self, value: Json) -> str:
        if id(value) not in self._texts:
            self._texts[id(value)] = _as_text(value)
        return self._texts[id(value)]

    def path_of(self, value: Json) -> str:
        if id(value) not in self._paths:
            self._paths[id(value)] = _without_detours(self.text_of(value))
        return self._paths[id(value)]

    def are(self, others: JsonObject) -> bool:
        if self.values != others:
            return False
        # To Python, 1 and true are equal.
        if self._canonical is None:
            self._canonical = canonical(self.values)
        return self._canonical == canonical(others)


@dataclass(frozen=True, slots=True)
class Name:
    """A tool's name: exact, by glob, or by regular expression."""

    text: str
    compiled: Glob | LinearRegex | None = None
    literals: int = 0

    def fits(self, name: str) -> bool:
        if self.compiled is None:
            return name == self.text
        if isinstance(self.compiled, Glob):
            return self.compiled.fits(name)
        return self.compiled.is_found_in(name)

    @property
    def specificity(self) -> Specificity:
        return (1, 0) if self.compiled is None else (0, self.literals)


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of one argument."""

    argument: str
    operator: Operator
    value: Json
    compiled: Glob | LinearRegex | None = None

    def holds(self, arguments: Arguments, *, loosely: bool) -> bool:
        """Whether it does. What is too long to be matched by an expression does when `loosely` says so."""
        found = _at(arguments.values, self.argument)
        is_opposite = self.operator in OPPOSITE
        if found is _MISSING:
            return is_opposite
        if self.compiled is None:
            return _is_same(found, self.value) is not is_opposite
        if isinstance(self.compiled, Glob):
            return self.compiled.fits(arguments.path_of(found)) is not is_opposite
        text = arguments.text_of(found)
        if len(text) > MAX_MATCHED_CHARACTERS:
            return loosely
        return self.compiled.is_found_in(text) is not is_opposite

    @property
    def literals(self) -> int:
        return len(literal_signs(_as_text(self.value)))


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a rule is about, and the text that it was written as."""

    text: str
    name: Name
    whole: str | None = None
    """A glob over the one argument of a call."""
    compiled_whole: Glob | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def has_conditions(self) -> bool:
        return bool(self.conditions) or self.compiled_whole is not None

    def fits(self, name: str, arguments: Arguments, *, loosely: bool) -> bool:
        """Whether a call is meant.

        Where that isn't certain, `loosely` decides: rules that ask or deny must not be evaded, rules that
        allow must be sure. A glob without an argument's name may be about any of several arguments.
        """
        if not self.name.fits(name):
            return False
        if not all(each.holds(arguments, loosely=loosely) for each in self.conditions):
            return False
        if self.compiled_whole is None:
            return True
        if not loosely and len(arguments.values) != 1:
            return False
        return any(
            self.compiled_whole.fits(arguments.path_of(value))
            for value in arguments.values.values()
        )

    @property
    def specificity(self) -> Specificity:
        equal = sum(each.operator is Operator.EQUALS for each in self.conditions)
        literals = sum(each.literals for each in self.conditions)
        if self.whole is not None:
            literals += len(literal_signs(self.whole))
        wholes = int(self.compiled_whole is not None)
        return (*self.name.specificity, equal, len(self.conditions) + wholes, literals)


def _is_same(a: Json, b: Json) -> bool:
    """As JSON has it: 1 is 1.0, and true is neither."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return isinstance(a, bool) is isinstance(b, bool) and a == b
    return a == b and canonical(a) == canonical(b)


_MISSING: Any = object()


def _at(arguments: JsonObject, path: str) -> Any:
    if path in arguments:
        return arguments[path]
    found: Any = arguments
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return _MISSING
        found = found[part]
    return found


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else compact(value)


def _without_detours(text: str) -> str:
    """A path as it is walked: `src/../secret` isn't within `src`."""
    parts = text.split("/")
    return posixpath.normpath(text) if len(parts) > 1 and {".", ".."} & set(parts) else text


_WITHOUT_SIGNS = str.maketrans("", "", r"*?[]^$.|()+\/")


def literal_signs(text: str) -> str:
    return text.translate(_WITHOUT_SIGNS)
