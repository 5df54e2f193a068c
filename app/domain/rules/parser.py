"""Parses the pattern of a rule:

    Bash                                    a tool by its exact name; "in quotes" if it has other characters
    file_*                                  a glob over names: * any text, ? one character, [ab] one of a set
    /^(read|list)_/                         a regular expression, found anywhere in the name
    Bash(npm *)                             a glob over the call's one argument
    refund(amount > 50 and to.country != "DE")     conditions on arguments, all of which must hold

Comparisons: `==`, `!=`, `>`, `>=`, `<` and `<=` of numbers and texts; `~` matches the glob, `=~` contains a match of
the regular expression, `!~` and `!=~` are their opposites. A dotted name is a path into objects.
"""

import json
import re
from contextlib import suppress

from app.domain.json_values import Json
from app.domain.rules.globs import BadGlob, Glob
from app.domain.rules.linear_regex import BadRegex, LinearRegex
from app.domain.rules.patterns import (
    OPPOSITE,
    ORDERING,
    Condition,
    Name,
    Operator,
    Pattern,
)

_PLAIN = re.compile(r"[A-Za-z0-9_.:@-]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ARGUMENT = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*")
_OPERATOR = re.compile(r"([=!<>~]+)\s*")
_NUMBER_OR_WORD = re.compile(r"(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.])")
_AND = re.compile(r"\s+and\s+")
_COMPARISONS = ", ".join(each.value for each in Operator)
_INSTEAD = {"=": "==", "===": "==", "=>": ">=", "=<": "<=", "<>": "!=", "!==": "!=", "~=": "=~"}
"""What to write instead of a comparison of other languages."""


class BadPattern(ValueError):
    """The text isn't a pattern. The message says why and what to write; `column` counts from 1."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.column = position + 1


def parse_pattern(text: str) -> Pattern:
    """The parsed pattern; raises `BadPattern`."""
    begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
    name, position = _read_name(text, begin, end)
    while position < end and text[position].isspace():
        position += 1
    stripped = text.strip()
    if position == end:
        return Pattern(stripped, name)
    if text[position] != "(" or text[end - 1] != ")":
        raise BadPattern(
            f"{text[position:end]!r} after the tool's name must stand in parentheses", position
        )
    return _with_parentheses(stripped, name, text, position + 1, end - 1)


def _with_parentheses(stripped: str, name: Name, text: str, begin: int, end: int) -> Pattern:
    inside = text[begin:end].strip()
    if not inside:
        raise BadPattern("the parentheses are empty; leave them out to mean every call", begin - 1)
    if _begins_condition(text, begin, end):
        return Pattern(stripped, name, conditions=_read_conditions(text, begin, end))
    whole = _unquoted(inside, begin)
    if whole == inside and any(sign in whole for sign in "=<>"):
        raise BadPattern(
            f"{inside!r} isn't a condition: write the argument's name, one of {_COMPARISONS}, and a value;"
            " write a glob with such signs in double quotes",
            begin,
        )
    if whole == "*":
        return Pattern(stripped, name)
    return Pattern(
        stripped,
        name,
        argument_glob=whole,
        compiled_argument=_glob(whole, begin),
        is_glob_quoted=whole != inside,
    )


def exact_pattern(tool: str) -> Pattern:
    """The pattern that matches exactly this tool."""
    return parse_pattern(tool if _PLAIN.fullmatch(tool) else json.dumps(tool))


def _read_name(text: str, begin: int, end: int) -> tuple[Name, int]:
    """The name, and the position behind it."""
    if text.startswith("/", begin):
        closing = text.find("/", begin + 1, end)
        if closing == -1:
            raise BadPattern("the regular expression isn't closed; end it with /", begin)
        expression = text[begin + 1 : closing]
        compiled = _regex(expression, begin)
        name = Name(text[begin : closing + 1], compiled)
        return name, closing + 1
    if (quoted := _QUOTED.match(text, begin, end)) is not None:
        return Name(_unquoted(quoted[0], begin)), quoted.end()
    opening = text.find("(", begin, end)
    after = end if opening == -1 else opening
    name_text = text[begin:after].strip()
    if not name_text:
        raise BadPattern(
            "there is no tool's name; write one, a glob, or /a regular expression/", begin
        )
    if any(sign in name_text for sign in "*?["):
        return Name(name_text, _glob(name_text, begin)), after
    return Name(name_text), after


def _begins_condition(text: str, begin: int, end: int) -> bool:
    argument = _ARGUMENT.match(text, begin, end)
    return argument is not None and _OPERATOR.match(text, argument.end(), end) is not None


def _read_conditions(text: str, position: int, end: int) -> tuple[Condition, ...]:
    conditions: list[Condition] = []
    while True:
        condition, position = _read_condition(text, position, end)
        conditions.append(condition)
        rest = text[position:end].strip()
        if not rest:
            return tuple(conditions)
        joined = _AND.match(text, position, end)
        if joined is None:
            raise BadPattern(f"{rest!r} is left over; {_remedy_of_remaining_text(rest)}", position)
        position = joined.end()


def _remedy_of_remaining_text(rest: str) -> str:
    if rest.startswith((",", "&")):
        return "join conditions by `and`"
    if re.match(r"or\b|\|", rest):
        return "there is no `or`: write one rule for each case"
    return "join conditions by `and`, and write texts in double quotes"


def _read_condition(text: str, position: int, end: int) -> tuple[Condition, int]:
    argument = _ARGUMENT.match(text, position, end)
    sign = None if argument is None else _OPERATOR.match(text, argument.end(), end)
    if argument is None or sign is None:
        raise BadPattern(
            f"{text[position:end]!r} isn't a condition; write an argument's name, one of"
            f" {_COMPARISONS}, and a value",
            position,
        )
    if sign[1] not in set(Operator):
        instead = (
            f"write {_INSTEAD[sign[1]]}" if sign[1] in _INSTEAD else f"there are {_COMPARISONS}"
        )
        raise BadPattern(f"{sign[1]!r} isn't a comparison; {instead}", sign.start())
    value, after = _read_value(text, sign.end(), end)
    operator = Operator(sign[1])
    compiled = _compiled(operator, value, sign.end())
    return Condition(argument[1], operator, value, compiled, argument.start(1)), after


def _read_value(text: str, position: int, end: int) -> tuple[Json, int]:
    found = _QUOTED.match(text, position, end) or _NUMBER_OR_WORD.match(text, position, end)
    if found is not None:
        with suppress(ValueError):
            return json.loads(found[0]), found.end()
    raise BadPattern(
        f"{text[position:end]!r} isn't a value; write a number, true, false, null, or text in double quotes",
        position,
    )


def _compiled(operator: Operator, value: Json, position: int) -> Glob | LinearRegex | None:
    """The value of a `~` or `=~`, compiled; None for other comparisons, whose values are checked."""
    positive = OPPOSITE.get(operator, operator)
    if positive is Operator.EQUALS:
        return None
    if positive in ORDERING:
        if value is None or isinstance(value, bool):
            raise BadPattern(f"{operator.value} needs a number, or text in double quotes", position)
        return None
    if not isinstance(value, str):
        raise BadPattern(f"{operator.value} needs text in double quotes", position)
    return _glob(value, position) if positive is Operator.GLOB else _regex(value, position)


def _unquoted(text: str, position: int) -> str:
    if _QUOTED.fullmatch(text) is None:
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        raise BadPattern(f"{text} isn't a JSON string; escape backslashes", position) from None


def _regex(expression: str, position: int) -> LinearRegex:
    try:
        return LinearRegex(expression)
    except BadRegex as error:
        raise BadPattern(str(error), position) from error


def _glob(text: str, position: int) -> Glob:
    try:
        return Glob(text)
    except BadGlob as error:
        raise BadPattern(str(error), position) from error
