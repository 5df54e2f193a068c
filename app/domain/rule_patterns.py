"""Which calls a rule's pattern means: a tool's name, and what must hold of the arguments."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from app.domain.json_values import Json, JsonObject, canonical, compact

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


@dataclass(frozen=True, slots=True)
class Name:
    """A tool's name: exact, by glob, or by regular expression."""

    text: str
    compiled: re.Pattern[str] | None = None
    literals: int = 0

    def fits(self, name: str) -> bool:
        if self.compiled is None:
            return name == self.text
        return self.compiled.search(name) is not None

    @property
    def specificity(self) -> Specificity:
        return (1, 0) if self.compiled is None else (0, self.literals)


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of one argument."""

    argument: str
    operator: Operator
    value: Json
    compiled: re.Pattern[str] | None = None

    def holds(self, arguments: JsonObject) -> bool:
        opposite = OPPOSITE.get(self.operator)
        return self._fits(arguments, opposite or self.operator) is (opposite is None)

    def _fits(self, arguments: JsonObject, operator: Operator) -> bool:
        found = _at(arguments, self.argument)
        if found is _MISSING:
            return False
        if operator is Operator.EQUALS:
            return _is_same(found, self.value)
        assert self.compiled is not None
        text = _as_text(found)
        if operator is Operator.GLOB:
            return self.compiled.search(_without_detours(text)) is not None
        return self.compiled.search(text) is not None

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
    compiled_whole: re.Pattern[str] | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def has_conditions(self) -> bool:
        return bool(self.conditions) or self.compiled_whole is not None

    def fits(self, name: str, arguments: JsonObject, *, loosely: bool) -> bool:
        """Whether a call is meant. Where it isn't clear which argument a glob is about, `loosely` says
        that any may be: who asks or denies must not be evaded, who allows must be sure."""
        if not self.name.fits(name) or not all(each.holds(arguments) for each in self.conditions):
            return False
        if self.compiled_whole is None:
            return True
        if not loosely and len(arguments) != 1:
            return False
        texts = [_without_detours(_as_text(value)) for value in arguments.values()]
        return any(self.compiled_whole.search(text) for text in texts)

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
    return canonical(a) == canonical(b)


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


def literal_signs(text: str) -> str:
    return re.sub(r"[*?\[\]^$.|()+\\/]", "", text)
