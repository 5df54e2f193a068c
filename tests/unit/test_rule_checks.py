"""Rules that can never match, and rules that deny or ask in vain: refused, with column and remedy."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from app.agents.agent_tools import plugins_of, tools_of
from app.builtin_plugins.builtin import BUILTIN_KINDS
from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId
from app.domain.json_values import JsonObject
from app.domain.rules.checks import problem_of_rule
from app.domain.rules.parser import parse_pattern
from app.domain.rules.rules import Behavior, Rule
from app.tools.functions.decorator import tool


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Money(BaseModel):
    amount: float
    currency: Literal["EUR", "USD"] = "EUR"


class Order(BaseModel):
    total: Money
    lines: list[Money] = []
    more: dict[str, Any] = {}
    above: "Order | None" = None


@tool
def refund(
    number: str,
    amount: Annotated[float, Field(ge=0, le=1000)],
    times: int = 1,
    note: str | None = None,
    color: Color = Color.RED,
    urgent: bool = False,
    order: Order | None = None,
) -> None:
    """Pay money back."""


@tool
def find(number: str) -> None:
    """Look an order up."""


@tool
def ping() -> None:
    """Answer."""


TOOLS = {each.descriptor.name: each for each in (refund, find, ping)}
SCHEMAS = {name: each.descriptor.parameters for name, each in TOOLS.items()}


def problem(pattern: str, behavior: Behavior = Behavior.DENY, **more: bool) -> str | None:
    found = problem_of_rule(
        Rule(pattern=parse_pattern(pattern), behavior=behavior), SCHEMAS, **more
    )
    return None if found is None else str(found)


@pytest.mark.parametrize(
    "pattern",
    [
        "refund",
        "*",
        "re*",
        "/^f/",
        "refund(amount > 50)",
        "refund(amount > 50 and amount <= 100)",
        "refund(amount >= 1000)",
        "refund(times == 2.0)",
        'refund(number == "A-7")',
        'refund(number > "A" and number < "B")',
        'refund(amount ~ "5*")',
        "refund(note == null)",
        'refund(note != null and note ~ "*x*")',
        'refund(color == "red")',
        "refund(urgent == true)",
        "refund(order.total.amount > 50)",
        "refund(order.above.above.total.amount > 50)",
        'refund(order.total.currency == "USD")',
        "refund(order.more.anything > 5)",
        "*(amount > 50)",
        '*(number ~ "A*")',
        "find(A-*)",
        "refund(A-*)",
    ],
)
def test_rules_that_can_match_are_accepted(pattern: str) -> None:
    assert problem(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        (
            "refnd",
            "column 1: the agent has no tool 'refnd', did you mean 'refund'?; correct it, or",
        ),
        (
            "delete_*",
            "column 1: 'delete_*' matches none of the agent's tools (refund, find, ping);",
        ),
        ("/^x/", "column 1: '/^x/' matches none of the agent's tools"),
        ("/^x/(y)", "column 1: '/^x/' matches none of the agent's tools"),
        (
            "refund(amont > 50)",
            "column 8: 'refund' has no argument 'amont', did you mean 'amount'?",
        ),
        ("refund(amount > 5 and wy == 1)", "column 23: 'refund' has no argument 'wy'"),
        ("re*(amont > 50)", "column 5: 'refund' has no argument 'amont'"),
        ("refund(order.sum > 5)", "'order' of 'refund' has nothing called 'sum'; correct the path"),
        ("refund(ordr.sum > 5)", "'refund' has no argument 'ordr.sum'"),
        ("refund(number.x > 5)", "'number' of 'refund' has nothing called 'x'"),
        ('refund(order.total.currency == "EURO")', "never \"EURO\", did you mean 'EUR'?"),
        (
            'refund(amount > "50")',
            "column 8: 'amount' of 'refund' is a number, and \"50\" never is;",
        ),
        ('refund(amount > "50")', "write amount > 50, without quotes"),
        ('refund(amount == "much")', "compare it with a number, without quotes"),
        ("refund(number > 50)", 'write number > "50", with quotes'),
        ("refund(number != 50)", "'number' of 'refund' is a text, and 50 never is"),
        ("refund(urgent == 1)", "'urgent' of 'refund' is true or false, and 1 never is"),
        ("refund(order > 5)", "'order' of 'refund' is an object or null, and 5 never is"),
        ("refund(number == null)", "'number' of 'refund' is never null"),
        ('refund(color == "reed")', "never \"reed\", did you mean 'red'?"),
        ("refund(times == 1.5)", "'times' of 'refund' is a whole number, and never 1.5"),
        ("refund(amount > 1000)", "'amount' is never > 1000, because of its minimum and maximum"),
        ("refund(amount < 0)", "'amount' is never < 0"),
        ("refund(amount == 2000)", "'amount' is never == 2000"),
        ("refund(amount > 50 and amount < 50)", "column 24: no value is > 50 and < 50"),
        ("refund(times >= 3 and times <= 2)", "no value is >= 3 and <= 2; correct one of them"),
        ('refund(number == "a" and number == "b")', "'number' can't equal two values"),
        ("refund(times == 3 and times > 4)", "'times' can't be 3 and > 4"),
        ("refund(amount is over 50)", "looks like a condition on 'amount', but isn't one"),
        ("refund(amount in 50..60)", "column 8: 'amount in 50..60' looks like a condition"),
        ("ping(x)", "column 6: 'ping' takes no arguments; remove the parentheses"),
        ("ping(x == 1)", "'ping' has no argument 'x', there are none"),
    ],
)
def test_rules_that_can_never_match_are_refused(pattern: str, sentence: str) -> None:
    assert sentence in (problem(pattern) or "accepted")


# --- with schemas of other frameworks -------------------------------------------------------------


def accepts(condition: str, schema: Any, behavior: Behavior = Behavior.DENY, **more: Any) -> bool:
    """Whether a rule with this condition on `a` can match a call of a tool with this schema."""
    tool_schema = {"type": "object", "properties": {"a": schema}, **more}
    rule = Rule(pattern=parse_pattern(f"t({condition})"), behavior=behavior)
    return problem_of_rule(rule, {"t": tool_schema}) is None


def numbers(**bounds: float) -> JsonObject:
    return {"type": "number", **bounds}


INCLUSIVE, EXCLUSIVE = (
    numbers(minimum=0, maximum=10),
    numbers(exclusiveMinimum=0, exclusiveMaximum=10),
)


@pytest.mark.parametrize(
    "schema, possible, impossible",
    [
        (
            INCLUSIVE,
            ["> 9.9", ">= 10", "< 0.1", "<= 0", "== 0", "== 10", "!= 11"],
            ["> 10", "> 11", ">= 11", "< 0", "< -1", "<= -1", "== 11", "== -1"],
        ),
        (
            EXCLUSIVE,
            ["> 9", ">= 9", "< 1", "<= 1", "== 5"],
            ["> 10", ">= 10", "< 0", "<= 0", "== 0", "== 10"],
        ),
        (numbers(minimum=0), ["> 100", "== 100"], ["< 0", "== -1"]),
        (numbers(maximum=0), ["< -100", "== -100"], ["> 0", "== 1"]),
        ({"minimum": 5}, ["> 1", "< 1", "== 1"], []),
        ({"anyOf": [numbers(maximum=5), {"type": "integer", "minimum": 10}]}, ["> 7"], []),
        ({"anyOf": [numbers(minimum=5), {"type": "boolean"}]}, ["== true", "> 1"], ["< 1"]),
        ({"anyOf": [numbers(minimum=5), {"type": "string"}]}, ['== "x"', '< "x"'], ["< 1"]),
    ],
)
def test_a_bound_is_possible_within_minimum_and_maximum(
    schema: JsonObject, possible: list[str], impossible: list[str]
) -> None:
    for each in possible:
        assert accepts(f"a {each}", schema), each
    for each in impossible:
        assert not accepts(f"a {each}", schema), each


@pytest.mark.parametrize(
    "conditions, is_possible",
    [
        ("a == 1 and a == 1", True),
        ("a == 1 and a == 2", False),
        ("a == 3 and a > 2", True),
        ("a == 3 and a > 3", False),
        ("a > 3 and a == 3", False),
        ("a >= 5 and a <= 5", True),
        ("a > 5 and a <= 5", False),
        ("a >= 5 and a < 5", False),
        ("a > 4 and a < 5", True),
        ("a < 5 and a > 4", True),
        ("a < 3 and a > 5", False),
        ("a > 5 and a > 7", True),
        ("a < 5 and a < 7", True),
        ('a > 5 and a < "x"', False),
        ('a > "b" and a < "a"', False),
        ('a > "a" and a < "b"', True),
        ('a == "x" and a > 3', True),
        ("a == true and a > 3", True),
        ("a == 5 and b == 6", True),
    ],
)
def test_conditions_on_one_argument_may_contradict_each_other(
    conditions: str, is_possible: bool
) -> None:
    anything = {"type": "object", "properties": {"a": {}, "b": {}}}
    rule = Rule(pattern=parse_pattern(f"t({conditions})"), behavior=Behavior.DENY)
    assert (problem_of_rule(rule, {"t": anything}) is None) is is_possible


@pytest.mark.parametrize(
    "schema, possible, impossible",
    [
        ({"enum": [1, 2]}, ["== 1", "> 1"], ["== 3", '== "x"', "== true"]),
        ({"const": "x"}, ['== "x"', '!= "y"'], ['== "y"', "== 1"]),
        ({"enum": ["x"]}, ['== "x"'], ['== "y"']),
        ({"enum": [1, "x"]}, ["== 1", '== "x"'], ["== true", "== 2"]),
        ({"anyOf": [{"enum": ["x"]}, {"type": "string"}]}, ['== "y"'], ["== 1"]),
        ({"anyOf": [{"const": "x"}, {"enum": ["y"]}]}, ['== "x"', '== "y"'], ['== "z"']),
        ({"type": "integer"}, ["== 2.0", "== 2", "> 1.5"], ["== 1.5", '== "2"', "== true"]),
        ({"type": "number"}, ["== 1.5", "== 1"], ['== "1"', "== true"]),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, ["== 2.0"], []),
        ({"type": ["integer", "number"]}, ["== 1.5"], []),
        ({"type": "boolean"}, ["== true"], ["== 1", '== "true"']),
        ({"type": "string"}, ['== "x"', "== null"], ["== 1", "== true"]),
        ({}, ['== "x"', "== 1", "== true", "== null"], []),
    ],
)
def test_a_value_is_possible_if_its_type_and_the_listed_values_allow_it(
    schema: JsonObject, possible: list[str], impossible: list[str]
) -> None:
    for each in possible:
        assert accepts(f"a {each}", schema), each
    for each in impossible:
        assert not accepts(f"a {each}", schema), each


@pytest.mark.parametrize(
    "schema, condition, is_possible",
    [
        ({"type": "string"}, "a == null", False),
        ({"type": "string"}, "a != null", True),
        ({"type": ["string", "null"]}, "a == null", True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "a == null", True),
        ({}, "a == null", True),
    ],
)
def test_only_a_required_argument_without_null_is_never_null(
    schema: JsonObject, condition: str, is_possible: bool
) -> None:
    assert accepts(condition, schema, required=["a"]) is is_possible


@pytest.mark.parametrize(
    "schema, condition, remedy",
    [
        ({"type": "boolean"}, 'a == "x"', "compare it with a value of its type"),
        ({"type": "boolean"}, "a == 1", "compare it with a value of its type"),
        ({"type": "string"}, "a == 1", 'write a == "1", with quotes'),
        ({"type": "integer"}, 'a == "1"', "write a == 1, without quotes"),
        ({"type": "integer"}, 'a == "x"', "compare it with a number, without quotes"),
        ({"type": ["integer", "string"]}, "a == true", 'write a == "true", with quotes'),
    ],
)
def test_a_value_of_another_type_has_a_remedy(
    schema: JsonObject, condition: str, remedy: str
) -> None:
    rule = Rule(pattern=parse_pattern(f"t({condition})"), behavior=Behavior.DENY)
    found = problem_of_rule(rule, {"t": {"type": "object", "properties": {"a": schema}}})
    assert found is not None
    assert found.sentence.endswith(remedy)


@pytest.mark.parametrize(
    "glob, more, behavior, is_possible",
    [
        ("a x", {}, Behavior.DENY, False),
        ('"a x"', {}, Behavior.DENY, True),
        ("a", {}, Behavior.DENY, True),
        ("b x", {}, Behavior.DENY, True),
        ("b*", {"additionalProperties": False}, Behavior.DENY, True),
        ("b*", {"properties": {}}, Behavior.DENY, True),
        ("b*", {"properties": {}, "additionalProperties": False}, Behavior.DENY, False),
        ("b*", {"required": ["a"]}, Behavior.ALLOW, True),
        ("b*", {"required": ["a", "b"]}, Behavior.ALLOW, False),
        ("b*", {"required": ["a", "b"]}, Behavior.ASK, True),
    ],
)
def test_a_glob_over_the_only_argument_needs_a_tool_with_one(
    glob: str, more: JsonObject, behavior: Behavior, is_possible: bool
) -> None:
    assert accepts(glob, {"type": "string"}, behavior, **more) is is_possible


def test_an_allow_rule_with_a_glob_needs_a_call_with_one_argument() -> None:
    sentence = problem("refund(A-*)", Behavior.ALLOW) or ""
    assert 'needs number, amount; write number ~ "A-*"' in sentence
    assert problem("find(A-*)", Behavior.ALLOW) is None


def test_a_rule_for_tools_of_clients_may_name_an_unknown_tool() -> None:
    assert problem('open_url(url ~ "http:*")', of_client=True) is None
    assert "no argument 'amont'" in (problem("refund(amont > 5)", of_client=True) or "")


# --- as the plugin reports them -------------------------------------------------------------------


def reported(
    *rules: tuple[str, str], approval: tuple[str, ...] = (), **more: bool
) -> list[tuple[str, str]]:
    table: JsonObject = {
        "rules": [{"tool": pattern, "behavior": behavior, **more} for pattern, behavior in rules]
    }
    spec = AgentSpec(
        id=AgentId("clerk"),
        model="m",
        tools=tuple(TOOLS),
        approval=approval,
        handoffs=(AgentId("boss"),),
        background=("find",),
        plugins={"permission": table},
    )
    plugins = plugins_of(spec, BUILTIN_KINDS, {})
    found = tools_of(spec, plugins, tools=TOOLS, agents={})
    descriptors = {name: each.descriptor for name, each in found.items()}
    problems = BUILTIN_KINDS["permission"].problems(spec, table, descriptors)
    return [(each.key, each.sentence) for each in problems]


def test_tools_of_hand_offs_and_background_calls_are_known() -> None:
    assert reported(("transfer_to_boss", "ask"), ("cancel_task", "deny")) == []


@pytest.mark.parametrize(
    ("rules", "winner"),
    [
        ([("re*(amount > 50)", "deny"), ("refund", "allow")], "refund"),
        ([("re*(amount > 50)", "ask"), ("refund", "allow")], "refund"),
        ([("re*", "deny"), ("refund", "ask")], "refund"),
        ([("*d", "deny"), ("refund", "allow"), ("find", "allow")], "refund"),
        ([('"refund"', "ask"), ("refund", "allow")], "refund"),
    ],
)
def test_a_deny_or_ask_rule_without_effect_is_refused(
    rules: list[tuple[str, str]], winner: str
) -> None:
    for order in (rules, rules[::-1]):
        [(key, sentence)] = reported(*order)
        assert key == f"rules[{order.index(rules[0])}].tool"
        assert f"has no effect: the rule '{winner}' is more specific" in sentence


@pytest.mark.parametrize(
    "rules",
    [
        [("refund(amount > 50)", "deny"), ("refund", "allow")],
        [("*", "deny"), ("refund", "allow")],
        [("re*", "deny"), ("refund(amount < 5)", "allow")],
        [("refund", "deny"), ("refund", "allow")],
        [("refund", "ask"), ("refund", "deny")],
    ],
)
def test_a_deny_or_ask_rule_with_some_effect_is_accepted(rules: list[tuple[str, str]]) -> None:
    assert reported(*rules) == []


def test_an_approval_that_a_rule_would_lift_is_refused() -> None:
    [(key, sentence)] = reported(("refund", "allow"), approval=("refund",))
    assert key == "rules[0].tool"
    assert "allows every call of 'refund', which is in the agent's approval list" in sentence
    assert reported(("refund(amount < 5)", "allow"), approval=("refund",)) == []
    assert reported(("re*", "allow"), approval=("refund",)) == []
