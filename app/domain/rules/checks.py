"""Checks a rule against the tools that it may be about: one that can never match is refused.

An allow rule that never matches makes people wait, and a deny rule that never matches denies nothing. So both
are errors in the file where they stand.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from msgspec import Struct

from app.domain.json_values import Json, JsonObject, compact
from app.domain.rules.patterns import (
    ORDERING,
    Condition,
    Operator,
    Pattern,
)
from app.domain.rules.rules import Behavior, Rule
from app.domain.rules.schema_places import find_in_schema, types_of
from app.domain.suggestions import did_you_mean

_IN_WORDS = {
    "number": "a number",
    "integer": "a whole number",
    "string": "a text",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


class RuleProblem(Struct, frozen=True):
    """What is wrong with a rule, and what to do. `column` counts from 1 in the text of its pattern."""

    column: int
    sentence: str

    def __str__(self) -> str:
        return f"column {self.column}: {self.sentence}"


def problem_of_rule(
    rule: Rule, tools: Mapping[str, JsonObject], *, of_client: bool = False
) -> RuleProblem | None:
    """Return why the rule can never match a call of these tools, given by name with their schemas.

    With `of_client` it may be about a tool that only a client's request brings.
    """
    pattern = rule.pattern
    matched = {name: schema for name, schema in tools.items() if pattern.name.fits(name)}
    if not matched:
        return None if of_client else _unknown_tool(pattern, tools)
    problems = [_problem_with(rule, name, schema) for name, schema in matched.items()]
    return None if None in problems else problems[0]


def _unknown_tool(pattern: Pattern, tools: Mapping[str, JsonObject]) -> RuleProblem:
    name = pattern.name
    if name.compiled is None:
        what = f"the agent has no tool {name.text!r}, {did_you_mean(name.text, tools)};"
    else:
        what = f"{name.text!r} matches none of the agent's tools ({', '.join(tools) or 'it has none'});"
    return RuleProblem(1, f"{what} correct it, or add frontend = true if clients bring this tool")


def _problem_with(rule: Rule, tool: str, schema: JsonObject) -> RuleProblem | None:
    if rule.pattern.compiled_argument is not None:
        return _problem_of_glob(rule, tool, schema)
    conditions = rule.pattern.conditions
    for each in conditions:
        sentence = _problem_of_condition(each, tool, schema)
        if sentence is not None:
            return RuleProblem(each.position + 1, sentence)
    for path in dict.fromkeys(each.argument for each in conditions):
        about = [each for each in conditions if each.argument == path]
        if (sentence := _contradiction(about, find_in_schema(schema, path))) is not None:
            return RuleProblem(about[-1].position + 1, sentence)
    return None


# --- globs without an argument's name -------------------------------------------------------------


def _problem_of_glob(rule: Rule, tool: str, schema: JsonObject) -> RuleProblem | None:
    pattern, declared = rule.pattern, list(schema.get("properties", {}))
    glob = pattern.argument_glob or ""
    column = pattern.text.find("(") + 2
    if not declared and schema.get("additionalProperties") is False:
        return RuleProblem(column, f"{tool!r} takes no arguments; remove the parentheses")
    first, _, rest = glob.partition(" ")
    if rest and first in declared and not pattern.is_glob_quoted:
        return RuleProblem(
            column,
            f"{glob!r} looks like a condition on {first!r}, but isn't one; write a comparison such as"
            f' {first} > 50 or {first} == "…", or put a glob in double quotes',
        )
    required = schema.get("required", ())
    if rule.behavior is Behavior.ALLOW and len(required) > 1:
        return RuleProblem(
            column,
            f"a glob without an argument's name allows only calls with one argument, and {tool!r} needs"
            f' {", ".join(required)}; write {required[0]} ~ "{glob}"',
        )
    return None


# --- conditions -----------------------------------------------------------------------------------


def _problem_of_condition(condition: Condition, tool: str, schema: JsonObject) -> str | None:
    path, operator, value = condition.argument, condition.operator, condition.value
    found = find_in_schema(schema, path)
    if not found:
        return _unknown_argument(path, tool, schema)
    if value is None:
        may_be_null = any(not types_of(each) or "null" in types_of(each) for each in found)
        if operator is Operator.EQUALS and not may_be_null and path in schema.get("required", ()):
            return f"{path!r} of {tool!r} is never null; remove this condition"
        return None
    if condition.compiled is not None:
        return None
    fitting = [each for each in found if _fits_type(value, each)]
    if not fitting:
        kinds = " or ".join(
            dict.fromkeys(_IN_WORDS[kind] for each in found for kind in types_of(each))
        )
        return (
            f"{path!r} of {tool!r} is {kinds}, and {compact(value)} never is;"
            f" {_other_form(path, operator, value, found)}"
        )
    if operator is Operator.EQUALS:
        return _never_equal(path, value, tool, fitting)
    return None


def _unknown_argument(path: str, tool: str, schema: JsonObject) -> str:
    first, _, rest = path.partition(".")
    declared = schema.get("properties", {})
    if rest and first in declared:
        return f"{first!r} of {tool!r} has nothing called {rest!r}; correct the path"
    return f"{tool!r} has no argument {path!r}, {did_you_mean(path, declared)}; correct it"


def _fits_type(value: Json, schema: JsonObject) -> bool:
    types = types_of(schema)
    if not types:
        listed = [*schema.get("enum", ()), *((schema["const"],) if "const" in schema else ())]
        return not listed or any(type(each) is type(value) for each in listed)
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, str):
        return "string" in types
    return "number" in types or "integer" in types


def _other_form(path: str, operator: Operator, value: Json, found: Sequence[JsonObject]) -> str:
    types = {kind for each in found for kind in types_of(each)}
    if isinstance(value, str) and types & {"number", "integer"}:
        try:
            float(value)
        except ValueError:
            return "compare it with a number, without quotes"
        return f"write {path} {operator.value} {value}, without quotes"
    if isinstance(value, int | float) and "string" in types:
        return f'write {path} {operator.value} "{compact(value)}", with quotes'
    return "compare it with a value of its type"


def _never_equal(path: str, value: Json, tool: str, schemas: Sequence[JsonObject]) -> str | None:
    """Why an argument never has this value."""
    listed: list[Json] = []
    for schema in schemas:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is None:
            whole = types_of(schema) == ("integer",)
            if not (whole and isinstance(value, float) and not value.is_integer()):
                return None
            return f"{path!r} of {tool!r} is a whole number, and never {compact(value)}"
        listed += values
    if value in listed:
        return None
    hint = did_you_mean(str(value), [str(each) for each in listed])
    return f"{path!r} of {tool!r} is never {compact(value)}, {hint}"


def _contradiction(conditions: Sequence[Condition], schemas: Sequence[JsonObject]) -> str | None:
    """Why no value of one argument meets all of the conditions."""
    path = conditions[0].argument
    equal = [each.value for each in conditions if each.operator is Operator.EQUALS]
    if any(each != equal[0] for each in equal):
        return f"{path!r} can't equal two values; write one rule for each"
    bounds = [each for each in conditions if each.operator in ORDERING]
    for bound in bounds:
        if equal and _same_kind(equal[0], bound.value):
            if not ORDERING[bound.operator](equal[0], bound.value):
                return f"{path!r} can't be {compact(equal[0])} and {bound.operator.value} {compact(bound.value)}"
    for low in bounds:
        for high in bounds:
            if _are_disjoint(low, high):
                return (
                    f"no value is {low.operator.value} {compact(low.value)} and"
                    f" {high.operator.value} {compact(high.value)}; correct one of them"
                )
    for bound in [*bounds, *(each for each in conditions if each.operator is Operator.EQUALS)]:
        if _is_outside(bound, schemas):
            return (
                f"{path!r} is never {bound.operator.value} {compact(bound.value)}, because of its minimum"
                " and maximum; correct the number"
            )
    return None


def _same_kind(one: Json, other: Json) -> bool:
    return isinstance(one, str) is isinstance(other, str) and not isinstance(one, bool)


def _are_disjoint(low: Condition, high: Condition) -> bool:
    if low.operator not in (Operator.GREATER, Operator.AT_LEAST):
        return False
    if high.operator not in (Operator.LESS, Operator.AT_MOST):
        return False
    if not _same_kind(low.value, high.value):
        return True
    is_closed = low.operator is Operator.AT_LEAST and high.operator is Operator.AT_MOST
    before: Any = low.value
    return bool(before > high.value or (before == high.value and not is_closed))


def _is_outside(bound: Condition, schemas: Sequence[JsonObject]) -> bool:
    """Whether the minimum and maximum of every schema exclude all numbers that meet the condition."""
    value = bound.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    numeric = [each for each in schemas if {"number", "integer"} & set(types_of(each))]
    return len(numeric) > 0 and all(_excludes(each, bound.operator, value) for each in numeric)


def _excludes(schema: JsonObject, operator: Operator, value: float) -> bool:
    least, above = schema.get("minimum", -inf), schema.get("exclusiveMinimum", -inf)
    most, below = schema.get("maximum", inf), schema.get("exclusiveMaximum", inf)
    too_low = value < least or value <= above
    too_high = value > most or value >= below
    match operator:
        case Operator.GREATER:
            return bool(too_high or value >= most)
        case Operator.AT_LEAST:
            return bool(too_high)
        case Operator.LESS:
            return bool(too_low or value <= least)
        case Operator.AT_MOST:
            return bool(too_low)
        case _:
            return bool(too_low or too_high)
