"""Permission rules: what patterns mean, and which rule wins."""

import pytest

from app.domain.json_values import JsonObject
from app.domain.rules.parser import BadPattern, exact_pattern, parse_pattern
from app.domain.rules.rules import Behavior, Rule, decide_by_rules, never_runs

NAN = float("nan")
ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY


def rule(pattern: str, behavior: Behavior, arguments: JsonObject | None = None) -> Rule:
    return Rule(pattern=parse_pattern(pattern), behavior=behavior, arguments=arguments)


def decided(name: str, arguments: JsonObject, *rules: tuple[str, Behavior]) -> Behavior | None:
    found = decide_by_rules(name, arguments, [rule(*each) for each in rules])
    return None if found is None else found.behavior


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, fits, doesnt",
    [
        ("Bash", ["Bash"], ["bash", "Bash2", "xBash"]),
        ("file_*", ["file_", "file_read"], ["file", "my_file_read"]),
        ("*", ["anything", ""], []),
        ("get_?", ["get_a"], ["get_", "get_ab"]),
        ("get_[ab]", ["get_a", "get_b"], ["get_c", "get_"]),
        ("get_[!ab]", ["get_c"], ["get_a"]),
        ("get_[^]", ["get_^"], ["get_x"]),
        ("a.b*", ["a.b", "a.bc"], ["axb"]),
        ("mcp:git-hub.search", ["mcp:git-hub.search"], ["mcp:git-hubxsearch"]),
        ("/^(read|list)_/", ["read_x", "list_"], ["my_read_x", "readx"]),
        ("/_all$/", ["delete_all"], ["delete_all_x"]),
        ("//", ["anything", ""], []),
        ('"odd name (*)"', ["odd name (*)"], ["odd name (x)"]),
        ("  Bash  ", ["Bash"], []),
    ],
)
def test_name_patterns_match_tools(pattern: str, fits: list[str], doesnt: list[str]) -> None:
    for name in fits:
        assert decided(name, {}, (pattern, ALLOW)) is ALLOW, name
    for name in doesnt:
        assert decided(name, {}, (pattern, ALLOW)) is None, name


@pytest.mark.parametrize("pattern", ["/^B/(/x*/)", "B*(x)", 'Bash(a =~ "x" and b > 5)'])
def test_patterns_with_the_same_text_are_equal(pattern: str) -> None:
    assert parse_pattern(pattern) == parse_pattern(pattern)


@pytest.mark.parametrize("pattern", ["/^B/(x)", "/^B/ (x)", '"Bash"  (x)', "Bash  ( x )"])
def test_spaces_around_parentheses_mean_nothing(pattern: str) -> None:
    assert decided("Bash", {"command": "x"}, (pattern, ALLOW)) is ALLOW
    assert decided("Bash", {"command": "y"}, (pattern, ALLOW)) is None


@pytest.mark.parametrize(
    "name", ["plain", "odd name", "a*", "x(y)", "/re/", 'quo"te', "ünï", "[a]"]
)
def test_an_exact_pattern_matches_one_tool(name: str) -> None:
    pattern = exact_pattern(name)
    assert pattern.name.fits(name)
    assert not pattern.name.fits(f"{name}x")
    assert parse_pattern(pattern.text) == pattern
    assert not pattern.has_conditions


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, arguments, fits",
    [
        ("T(npm *)", {"command": "npm test"}, True),
        ("T(npm *)", {"command": "npm"}, False),
        ("T(npm *)", {"command": "sudo npm test"}, False),
        ("T(npm *)", {}, False),
        ('T("a = b")', {"x": "a = b"}, True),
        ("T(*)", {"a": 1, "b": 2}, True),
        ('T(mode == "w")', {"mode": "w", "other": 1}, True),
        ('T(mode == "w")', {"mode": "W"}, False),
        ('T(mode == "w")', {}, False),
        ("T(n == 5)", {"n": 5}, True),
        ("T(n == 5)", {"n": 5.0}, True),
        ("T(n == 5)", {"n": "5"}, False),
        ("T(n == -1.5)", {"n": -1.5}, True),
        ("T(b == true)", {"b": True}, True),
        ("T(b == true)", {"b": 1}, False),
        ("T(x == null)", {"x": None}, True),
        ("T(x == null)", {}, True),
        ("T(x != null)", {}, False),
        ("T(x != null)", {"x": 0}, True),
        ("T(n > 50)", {"n": 51}, True),
        ("T(n > 50)", {"n": 50.5}, True),
        ("T(n > 50)", {"n": 50}, False),
        ("T(n>50)", {"n": 51}, True),
        ("T(n >= 50)", {"n": 50}, True),
        ("T(n >= 50)", {"n": 49.9}, False),
        ("T(n < -1.5)", {"n": -2}, True),
        ("T(n < -1.5)", {"n": -1.5}, False),
        ("T(n <= 1e3)", {"n": 1000}, True),
        ("T(n <= 1e3)", {"n": 1001}, False),
        ("T(n > 50)", {"n": 10**400}, True),
        ('T(day >= "2030-01-01")', {"day": "2030-01-02"}, True),
        ('T(day >= "2030-01-01")', {"day": "2029-12-31"}, False),
        ("T(n != 5)", {"n": 6}, True),
        ("T(n != 5)", {"n": 5.0}, False),
        ("T(order.total > 50)", {"order": {"total": 51}}, True),
        ("T(order.total > 50)", {"order": {"total": 1}}, False),
        ("T(n > 50 and n <= 100)", {"n": 100}, True),
        ("T(n > 50 and n <= 100)", {"n": 101}, False),
        ('T(x == " and ")', {"x": " and "}, True),
        ('T(path ~ "src/**")', {"path": "src/a/b.py"}, True),
        ('T(path ~ "src/**")', {"path": "lib/src/a"}, False),
        ('T(path ~ "src/**")', {"path": "src/../secret"}, False),
        ('T(path ~ "src/**")', {"path": "src/./a"}, True),
        ('T(path ~ "src/**")', {"path": "lib/../src/a"}, True),
        ('T(url ~ "https://a.example/*")', {"url": "https://a.example/x"}, True),
        ('T(n ~ "1*")', {"n": 12}, True),
        ('T(cmd =~ "rm")', {"cmd": "please rm it"}, True),
        ('T(cmd =~ "^rm")', {"cmd": "please rm it"}, False),
        ('T(cmd =~ "a.b")', {"cmd": "a\nb"}, True),
        ('T(mode != "w")', {"mode": "r"}, True),
        ('T(mode != "w")', {"mode": "w"}, False),
        ('T(mode != "w")', {}, False),
        ('T(path !~ "src/**")', {"path": "etc/x"}, True),
        ('T(path !~ "src/**")', {"path": "src/x"}, False),
        ('T(path !~ "src/**")', {"path": "src/../x"}, True),
        ('T(cmd !=~ "rm")', {"cmd": "ls"}, True),
        ('T(cmd !=~ "rm")', {"cmd": "rm"}, False),
        ('T(path ~ "src/**" and mode == "w")', {"path": "src/x", "mode": "w"}, True),
        ('T(path ~ "src/**" and mode == "w")', {"path": "src/x", "mode": "r"}, False),
        ('T(path ~ "a,b" and mode == "w")', {"path": "a,b", "mode": "w"}, True),
        ('T(to.name == "ann")', {"to": {"name": "ann"}}, True),
        ('T(to.name == "ann")', {"to.name": "ann"}, True),
        ('T(to.name == "ann")', {"to": "ann"}, False),
        ('T(list ~ "*\\"x\\"*")', {"list": ["x"]}, True),
        ('T*(a == "1")', {"a": "1"}, True),
        ('/^T$/(a == "1")', {"a": "1"}, True),
        ('"T"(a == "1")', {"a": "1"}, True),
    ],
)
def test_argument_patterns_match_calls(pattern: str, arguments: JsonObject, fits: bool) -> None:
    assert (decided("T", arguments, (pattern, ALLOW)) is ALLOW) is fits


def test_deny_and_ask_rules_match_any_argument_and_allow_rules_need_a_single_one() -> None:
    """A glob without a name, and a call with more than one argument."""
    several = {"command": "rm -rf /", "comment": "npm test"}
    assert decided("Bash", several, ("Bash(npm *)", ALLOW)) is None
    assert decided("Bash", several, ("Bash(rm *)", DENY)) is DENY
    assert decided("Bash", several, ("Bash(rm *)", ASK)) is ASK


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("", "no tool's name"),
        ("(x)", "no tool's name"),
        ("/[/", "isn't a regular expression"),
        ("/open", "isn't closed"),
        ("file_[", "isn't closed"),
        ("Bash(npm *", "parentheses"),
        ("Bash()", "empty"),
        ("/x/y", "parentheses"),
        ("Bash(a == b)", "double quotes"),
        ('Bash(a = "x")', "'=' isn't a comparison; write =="),
        ("Bash(a => 5)", "'=>' isn't a comparison; write >="),
        ("Bash(a =< 5)", "write <="),
        ("Bash(a <> 5)", "write !="),
        ("Bash(a === 5)", "write =="),
        ("Bash(a >> 5)", "'>>' isn't a comparison; there are =="),
        ("Bash(a > true)", "> needs a number, or text in double quotes"),
        ("Bash(a <= null)", "needs a number"),
        ("Bash(50 < a)", "write the argument's name"),
        ("Bash(not a > 5)", "write the argument's name"),
        ("Bash(a > 5 or b > 5)", "there is no `or`: write one rule for each case"),
        ("Bash(a > 5 || b > 5)", "there is no `or`"),
        ("Bash(a > 5 && b > 5)", "join conditions by `and`"),
        ("Bash(a > 5, b > 5)", "join conditions by `and`"),
        ("Bash(a > 5 and)", "left over"),
        ("Bash(a > 5 and b)", "isn't a condition"),
        ("Bash(a > 5EUR)", "isn't a value"),
        ("Bash(a > 5.)", "isn't a value"),
        ("Bash(FOO==1 npm)", "left over"),
        ('Bash(a == "x" b == "y")', "left over"),
        ('Bash(a == "x",)', "join conditions by `and`"),
        ("Bash(a ~ 5)", "double quotes"),
        ('Bash(a =~ "(")', "isn't a regular expression"),
        ('Bash(a == "\\q")', "double quotes"),
    ],
)
def test_an_invalid_pattern_is_reported(wrong: str, message: str) -> None:
    with pytest.raises(BadPattern, match=message):
        parse_pattern(wrong)


@pytest.mark.parametrize(
    "wrong, column",
    [
        ("Bash(npm", 5),
        (" Bash(x)y", 6),
        ("refund(amount = 5)", 15),
        ("refund(amount > 5 and 6 > 5)", 23),
        ("refund(amount >= five)", 18),
        ('refund(a == "x" or b == 1)', 16),
        ("/(/", 1),
        ("Bash()", 5),
        (" Bash( )", 6),
        ("/x/  y", 6),
    ],
)
def test_an_invalid_pattern_has_a_column(wrong: str, column: int) -> None:
    with pytest.raises(BadPattern) as caught:
        parse_pattern(wrong)
    assert caught.value.column == column


CLOSED = {"type": "object", "properties": {"n": {}, "cc": {"default": None}, "k": {"default": 60}}}


@pytest.mark.parametrize("behavior", [DENY, ASK])
@pytest.mark.parametrize(
    "arguments", [{}, {"n": None}, {"n": "51"}, {"n": "x"}, {"n": True}, {"n": [51]}, {"n": NAN}]
)
@pytest.mark.parametrize("sign", ["==", "!=", ">", ">=", "<", "<="])
def test_a_value_that_cannot_be_compared_is_denied_or_asked_about_and_never_allowed(
    behavior: Behavior, arguments: JsonObject, sign: str
) -> None:
    for schema in (None, CLOSED):
        for pattern in (f"T(n {sign} 50)", f"T(n {sign} 50 and n {sign} 50)"):
            for wanted, made in ((behavior, behavior), (None, ALLOW)):
                found = decide_by_rules("T", arguments, [rule(pattern, made)], schema)
                assert (None if found is None else found.behavior) is wanted


def test_an_argument_that_is_both_a_name_and_a_path_is_uncertain() -> None:
    both = {"a.b": 1, "a": {"b": 100}}
    assert decided("T", both, ("T(a.b > 50)", DENY)) is DENY
    assert decided("T", both, ("T(a.b < 50)", ALLOW)) is None


def test_a_condition_that_is_certainly_false_outweighs_an_uncertain_one() -> None:
    assert decided("T", {}, ('T(cc != null and cc ~ "*@evil.example")', DENY)) is None
    assert decided("T", {"cc": "x@evil.example"}, ('T(cc ~ "*@evil.example")', DENY)) is DENY
    assert decided("T", {"cc": None}, ('T(cc ~ "*@evil.example")', DENY)) is DENY


def test_a_missing_argument_counts_with_its_declared_default() -> None:
    for arguments, wanted in (({}, ASK), ({"k": 40}, None), ({"k": None}, ASK)):
        found = decide_by_rules("T", arguments, [rule("T(k > 50)", ASK)], CLOSED)
        assert (None if found is None else found.behavior) is wanted


def test_a_pattern_for_several_tools_is_not_about_those_without_the_argument() -> None:
    for pattern in ('*(path ~ "x")', "/./(path > 5)"):
        assert decide_by_rules("T", {"n": 1}, [rule(pattern, DENY)], CLOSED) is None
    assert decide_by_rules("T", {"n": 1}, [rule("T(path > 5)", DENY)], CLOSED) is not None


@pytest.mark.parametrize("declared", ["to", "to.country"])
def test_a_pattern_for_several_tools_is_about_those_that_declare_the_path(declared: str) -> None:
    schema: JsonObject = {"type": "object", "properties": {declared: {}}}
    denial = rule('*(to.country == "FR")', DENY)
    for arguments in ({"to": {"country": "FR"}}, {"to.country": "FR"}):
        assert decide_by_rules("T", arguments, [denial], schema) is denial


def test_conditions_are_evaluated_in_linear_time() -> None:
    long = " and ".join(f'a{n} != "{n}"' for n in range(60))
    rules = [rule(f"T({long})", DENY)] * 50
    arguments = {f"a{n}": "x" * 100_000 for n in range(60)}
    assert decide_by_rules("T", arguments, rules) is rules[0]


# --- precedence -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules, behavior",
    [
        ([("Bash", ALLOW), ("*", DENY)], ALLOW),
        ([("Bash", DENY), ("*", ALLOW)], DENY),
        ([("Bash", ALLOW), ("Bash(rm *)", DENY)], DENY),
        ([("Bash", DENY), ("Bash(rm *)", ALLOW)], ALLOW),
        ([("Bash", ASK), ("Ba*(rm *)", ALLOW)], ASK),
        ([("Bas*", ALLOW), ("B*", DENY)], ALLOW),
        ([("Bash(rm *)", ALLOW), ("Bash(rm -r*)", DENY)], DENY),
        ([("Bash(rm -rf *)", ASK), ("Bash(rm *)", DENY)], ASK),
        ([('Bash(command == "rm -rf x")', ALLOW), ("Bash(rm -rf *)", DENY)], ALLOW),
        ([('Bash(command == "rm -rf x")', ALLOW), ('Bash(command ~ "rm -rf x")', DENY)], ALLOW),
        ([("Bash", ALLOW), ("Bash", DENY)], DENY),
        ([("Bash", ASK), ("Bash", ALLOW)], ALLOW),
        ([("Bash", ASK), ("Bash", ALLOW), ("Bash", DENY)], DENY),
        ([('Bash(command > "a")', ASK), ('Bash(command > "abcdef")', DENY)], DENY),
        ([('Bash(command > "abcdef")', ASK), ('Bash(command > "a")', DENY)], DENY),
        ([('Bash(command > "a")', ASK), ('Bash(command ~ "*")', DENY)], DENY),
        ([("Edit", DENY)], None),
        ([], None),
    ],
)
def test_the_most_specific_wins_and_among_equals_the_strictest(
    rules: list[tuple[str, Behavior]], behavior: Behavior | None
) -> None:
    arguments = {"command": "rm -rf x"}
    assert decided("Bash", arguments, *rules) is behavior
    assert decided("Bash", arguments, *reversed(rules)) is behavior


def test_a_glob_over_the_only_argument_counts_as_one_condition() -> None:
    with_glob, with_condition = parse_pattern("Bash(rm *)"), parse_pattern('Bash(command != "ls")')
    assert with_glob.specificity[:3] == (1, 0, 0)
    assert with_glob.specificity[3] == with_condition.specificity[3] == 1
    assert parse_pattern("Bash").specificity[3] == 0


def test_exactly_these_arguments_are_the_most_specific_of_a_tool() -> None:
    exactly = rule("Bash", ALLOW, {"command": "rm x", "force": True})
    rules = [rule('Bash(command == "rm x")', DENY), exactly]
    assert decide_by_rules("Bash", {"force": True, "command": "rm x"}, rules) is exactly
    assert decide_by_rules("Bash", {"command": "rm x"}, [exactly]) is None
    assert decide_by_rules("Bash", {"command": "rm x", "force": True, "more": 1}, [exactly]) is None
    assert decide_by_rules("Bash", {"command": "rm x", "force": 1}, [exactly]) is None


@pytest.mark.parametrize(
    "rules, default, hidden",
    [
        ([("Bash", DENY)], ALLOW, True),
        ([("Bash(*)", DENY)], ALLOW, True),
        ([("*", DENY)], ALLOW, True),
        ([], DENY, True),
        ([], ASK, False),
        ([("Bash(rm *)", DENY)], ALLOW, False),
        ([("Bash(rm *)", DENY)], DENY, True),
        ([("Bash", DENY), ("Bash(npm *)", ALLOW)], ALLOW, False),
        ([("Bash", DENY), ("B*(npm *)", ALLOW)], ALLOW, True),
        ([("*", DENY), ("Bash", ASK)], ALLOW, False),
        ([("*", ALLOW), ("Bash", DENY)], ALLOW, True),
        ([("Bash(npm *)", ASK)], DENY, False),
    ],
)
def test_a_tool_that_is_always_denied_is_detected(
    rules: list[tuple[str, Behavior]], default: Behavior, hidden: bool
) -> None:
    assert never_runs("Bash", [rule(*each) for each in rules], default) is hidden
