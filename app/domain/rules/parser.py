"""How the pattern of a rule is written and read. From the simplest:

    Bash                                  a tool by its exact name; "in quotes" when that has other signs
    file_*                                a glob over names: * any text, ? one sign, [ab] one of some
    /^(read|list)_/                       a regular expression, found anywhere in the name
    Bash(npm *)                           a glob over the call's one argument
    Edit(path ~ "src/**", mode = "w")     conditions on arguments, all of which must hold

Operators: `=` equals, `~` fits the glob, `=~` has the regular expression in it; `!=`, `!~` and `!=~` are
their opposites, which also hold where the argument is missing. A dotted name looks into objects.
"""

import json
import re

from app.domain.json_values import Json
from app.domain.rules.globs import BadGlob, Glob
from app.domain.rules.linear_regex import BadRegex, LinearRegex
from app.domain.rules.patterns import OPPOSITE, Condition, Name, Operator, Pattern, literal_signs

_PLAIN = re.compile(r"[A-Za-z0-9_.:@-]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_CONDITION = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*(!=~|=~|!=|!~|=|~)\s*")
_NUMBER_OR_WORD = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


class BadPattern(ValueError):
    """The text isn't a pattern; the message says why and what to write."""


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


def exact_pattern(tool: str) -> Pattern:
    """The pattern that means this tool and no other."""
    return parse_pattern(tool if _PLAIN.fullmatch(tool) else json.dumps(tool))


def _read_name(text: str) -> tuple[Name, str]:
    if text.startswith("/"):
        end = text.find("/", 1)
        if end < 0:
            raise BadPattern("the regular expression isn't closed; end it with /")
        expression = text[1:end]
        compiled = _regex(expression)
        return Name(text[: end + 1], compiled, len(literal_signs(expression))), text[end + 1 :]
    if (quoted := _QUOTED.match(text)) is not None:
        return Name(_unquoted(quoted[0])), text[quoted.end() :]
    name = text.partition("(")[0].strip()
    if not name:
        raise BadPattern("there is no tool's name; write one, a glob, or /a regular expression/")
    rest = text[len(text.partition("(")[0]) :]
    if any(sign in name for sign in "*?["):
        return Name(name, _glob(name), len(literal_signs(name))), rest
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
    positive = OPPOSITE.get(operator, operator)
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


def _regex(expression: str) -> LinearRegex:
    try:
        return LinearRegex(expression)
    except BadRegex as error:
        raise BadPattern(str(error)) from error


def _glob(text: str) -> Glob:
    try:
        return Glob(text)
    except BadGlob as error:
        raise BadPattern(str(error)) from error
