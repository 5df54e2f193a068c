"""Permission rules: which calls run, which are asked about, which are denied.

A rule is a pattern and a behavior. Patterns, from the simplest:

    Bash                                  a tool by its exact name; "in quotes" when that has other signs
    file_*                                a glob over names: * any text, ? one sign, [ab] one of some
    /^(read|list)_/                       a regular expression, found anywhere in the name
    Bash(npm *)                           a glob over the call's one argument
    Edit(path ~ "src/**", mode = "w")     conditions on arguments, all of which must hold

Operators: `=` equals, `~` fits the glob, `=~` has the regular expression in it; `!=`, `!~` and `!=~` are
their opposites, which also hold where the argument is missing. A dotted name looks into objects.

Of the rules that fit, the most specific wins; among equals deny, then allow, then ask.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from app.domain.json_values import Json, JsonObject, canonical, compact


class Behavior(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_AMONG_EQUALS = {Behavior.ASK: 0, Behavior.ALLOW: 1, Behavior.DENY: 2}
Specificity: TypeAlias = tuple[int, ...]


class BadPattern(ValueError):
    """The text isn't a pattern; the message says why and what to write."""


class Operator(StrEnum):
    EQUALS = "="
    GLOB = "~"
    REGEX = "=~"
    NOT_EQUALS = "!="
    NOT_GLOB = "!~"
    NOT_REGEX = "!=~"


_OPPOSITE = {
    Operator.NOT_EQUALS: Operator.EQUALS,
    Operator.NOT_GLOB: Operator.GLOB,
    Operator.NOT_REGEX: Operator.REGEX,
}


# --- what is matched ------------------------------------------------------------------------------


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
        opposite = _OPPOSITE.get(self.operator)
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
        return len(_literal_signs(_as_text(self.value)))


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
            literals += len(_literal_signs(self.whole))
        wholes = int(self.compiled_whole is not None)
        return (*self.name.specificity, equal, len(self.conditions) + wholes, literals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to the calls that a pattern means; with `arguments`, only to exactly those."""

    pattern: Pattern
    behavior: Behavior
    arguments: JsonObject | None = None
    reason: str | None = None

    def fits(self, name: str, arguments: JsonObject) -> bool:
        if self.arguments is not None and canonical(arguments) != canonical(self.arguments):
            return False
        loosely = self.behavior is not Behavior.ALLOW
        return self.pattern.fits(name, arguments, loosely=loosely)

    @property
    def is_unconditional(self) -> bool:
        return self.arguments is None and not self.pattern.has_conditions

    @property
    def rank(self) -> Specificity:
        exactly = int(self.arguments is not None)
        name, rest = self.pattern.specificity[:2], self.pattern.specificity[2:]
        return (*name, exactly, *rest, _AMONG_EQUALS[self.behavior])


def ruling(name: str, arguments: JsonObject, rules: Iterable[Rule]) -> Rule | None:
    """The rule that decides about a call, if any does."""
    fitting = [rule for rule in rules if rule.fits(name, arguments)]
    return max(fitting, key=lambda rule: rule.rank, default=None)


def never_runs(name: str, rules: Sequence[Rule], default: Behavior) -> bool:
    """Whether every call of a tool is denied, whatever its arguments."""
    about = [rule for rule in rules if rule.pattern.name.fits(name)]
    flat = max(
        (rule for rule in about if rule.is_unconditional), key=lambda rule: rule.rank, default=None
    )
    if (default if flat is None else flat.behavior) is not Behavior.DENY:
        return False
    # A rule that the denial outranks changes nothing.
    return all(
        rule.behavior is Behavior.DENY or (flat is not None and rule.rank < flat.rank)
        for rule in about
    )


def exact_pattern(tool: str) -> Pattern:
    """The pattern that means this tool and no other."""
    return parse_pattern(tool if _PLAIN.fullmatch(tool) else json.dumps(tool))


# --- reading patterns -----------------------------------------------------------------------------

_PLAIN = re.compile(r"[A-Za-z0-9_.:@-]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_CONDITION = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*(!=~|=~|!=|!~|=|~)\s*")
_NUMBER_OR_WORD = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


def parse_pattern(text: str) -> Pattern:
    """The pattern that a text stands for, or `BadPattern`."""
    name, rest = _read_name(text.strip())
    rest = rest.strip()
    if not rest:
        return Pattern(text.strip(), name)
    if not (rest.startswith("(") and rest.endswith(")")):
        raise BadPattern(f"{rest!r} after the tool's name must stand in parentheses")
    inside = rest[1:-1].strip()
    if not inside:
        raise BadPattern("the parentheses are empty; leave them out to mean every call")
    if _CONDITION.match(inside):
        return Pattern(text.strip(), name, conditions=_read_conditions(inside))
    whole = _unquoted(inside)
    if whole == "*":
        return Pattern(text.strip(), name)
    return Pattern(text.strip(), name, whole=whole, compiled_whole=_glob(whole))


def _read_name(text: str) -> tuple[Name, str]:
    if text.startswith("/"):
        end = text.find("/", 1)
        if end < 0:
            raise BadPattern("the regular expression isn't closed; end it with /")
        expression = text[1:end]
        compiled = _regex(expression)
        return Name(text[: end + 1], compiled, len(_literal_signs(expression))), text[end + 1 :]
    if (quoted := _QUOTED.match(text)) is not None:
        return Name(_unquoted(quoted[0])), text[quoted.end() :]
    name = text.partition("(")[0].strip()
    if not name:
        raise BadPattern("there is no tool's name; write one, a glob, or /a regular expression/")
    rest = text[len(text.partition("(")[0]) :]
    if any(sign in name for sign in "*?["):
        return Name(name, _glob(name), len(_literal_signs(name))), rest
    return Name(name), rest


def _read_conditions(text: str) -> tuple[Condition, ...]:
    conditions: list[Condition] = []
    place = 0
    while True:
        begin = _CONDITION.match(text, place)
        if begin is None:
            raise BadPattern(f'{text[place:]!r} isn\'t a condition; write name = "value"')
        value, place = _read_value(text, begin.end())
        conditions.append(_condition(begin[1], Operator(begin[2]), value))
        rest = text[place:].lstrip()
        if not rest:
            return tuple(conditions)
        if not rest.startswith(","):
            raise BadPattern(f"{rest!r} is left over; separate conditions by commas")
        place = len(text) - len(rest) + 1


def _read_value(text: str, place: int) -> tuple[Json, int]:
    for form in (_QUOTED, _NUMBER_OR_WORD):
        if (found := form.match(text, place)) is not None:
            try:
                return json.loads(found[0]), found.end()
            except ValueError:
                break
    raise BadPattern(f"{text[place:]!r} isn't a value; write text in double quotes")


def _condition(argument: str, operator: Operator, value: Json) -> Condition:
    positive = _OPPOSITE.get(operator, operator)
    if positive is Operator.EQUALS:
        return Condition(argument, operator, value)
    if not isinstance(value, str):
        raise BadPattern(f"{operator.value} needs text in double quotes")
    compiled = _glob(value) if positive is Operator.GLOB else _regex(value)
    return Condition(argument, operator, value, compiled)


def _unquoted(text: str) -> str:
    if _QUOTED.fullmatch(text) is None:
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        raise BadPattern(f"{text} isn't text as JSON has it; escape backslashes") from None


def _regex(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression, re.DOTALL)
    except re.error as error:
        raise BadPattern(f"{expression!r} isn't a regular expression ({error})") from error


def _glob(text: str) -> re.Pattern[str]:
    """A glob over the whole of a text. `*` passes over slashes, too; `[!ab]` is none of some."""
    parts: list[str] = []
    place = 0
    while place < len(text):
        sign = text[place]
        place += 1
        if sign == "*":
            # Several in a row are one, and cost no more.
            parts += [] if parts[-1:] == [".*"] else [".*"]
        elif sign == "?":
            parts.append(".")
        elif sign == "[":
            end = text.find("]", place + 1)
            if end < 0:
                raise BadPattern(f"the [ in {text!r} isn't closed")
            some = text[place:end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            some = f"^{some[1:]}" if some.startswith("!") else some
            parts.append(f"[{some}]")
            place = end + 1
        else:
            parts.append(re.escape(sign))
    return _regex(rf"\A{''.join(parts)}\Z")


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


def _literal_signs(text: str) -> str:
    return re.sub(r"[*?\[\]^$.|()+\\/]", "", text)
