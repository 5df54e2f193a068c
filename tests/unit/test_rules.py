"""Permission rules: what patterns mean, and which rule wins."""

import pytest

from app.domain.json_values import JsonObject
from app.domain.rules.parser import BadPattern, exact_pattern, parse_pattern
from app.domain.rules.rules import Behavior, Rule, decide_by_rules, never_runs

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
        ('"odd name (*)"', ["odd name (*)"], ["odd name (x)"]),
        ("  Bash  ", ["Bash"], []),
    ],
)
def test_names(pattern: str, fits: list[str], doesnt: list[str]) -> None:
    for name in fits:
        assert decided(name, {}, (pattern, ALLOW)) is ALLOW, name
    for name in doesnt:
        assert decided(name, {}, (pattern, ALLOW)) is None, name


@pytest.mark.parametrize(
    "name", ["plain", "odd name", "a*", "x(y)", "/re/", 'quo"te', "ünï", "[a]"]
)
def test_an_exact_pattern_means_one_tool(name: str) -> None:
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
        ('T(mode = "w")', {"mode": "w", "other": 1}, True),
        ('T(mode = "w")', {"mode": "W"}, False),
        ('T(mode = "w")', {}, False),
        ("T(n = 5)", {"n": 5}, True),
        ("T(n = 5)", {"n": 5.0}, True),
        ("T(n = 5)", {"n": "5"}, False),
        ("T(n = -1.5)", {"n": -1.5}, True),
        ("T(b = true)", {"b": True}, True),
        ("T(b = true)", {"b": 1}, False),
        ("T(x = null)", {"x": None}, True),
        ("T(x = null)", {}, False),
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
        ('T(mode != "w")', {}, True),
        ('T(path !~ "src/**")', {"path": "etc/x"}, True),
        ('T(path !~ "src/**")', {"path": "src/x"}, False),
        ('T(path !~ "src/**")', {"path": "src/../x"}, True),
        ('T(cmd !=~ "rm")', {"cmd": "ls"}, True),
        ('T(cmd !=~ "rm")', {"cmd": "rm"}, False),
        ('T(path ~ "src/**", mode = "w")', {"path": "src/x", "mode": "w"}, True),
        ('T(path ~ "src/**", mode = "w")', {"path": "src/x", "mode": "r"}, False),
        ('T(path ~ "a,b", mode = "w")', {"path": "a,b", "mode": "w"}, True),
        ('T(to.name = "ann")', {"to": {"name": "ann"}}, True),
        ('T(to.name = "ann")', {"to.name": "ann"}, True),
        ('T(to.name = "ann")', {"to": "ann"}, False),
        ('T(list ~ "*\\"x\\"*")', {"list": ["x"]}, True),
        ('T*(a = "1")', {"a": "1"}, True),
        ('/^T$/(a = "1")', {"a": "1"}, True),
        ('"T"(a = "1")', {"a": "1"}, True),
    ],
)
def test_arguments(pattern: str, arguments: JsonObject, fits: bool) -> None:
    assert (decided("T", arguments, (pattern, ALLOW)) is ALLOW) is fits


def test_who_denies_is_not_evaded_and_who_allows_is_sure() -> None:
    """A glob without a name, and a call with more than one argument."""
    several = {"command": "rm -rf /", "comment": "npm test"}
    assert decided("Bash", several, ("Bash(npm *)", ALLOW)) is None
    assert decided("Bash", several, ("Bash(rm *)", DENY)) is DENY
    assert decided("Bash", several, ("Bash(rm *)", ASK)) is ASK


@pytest.mark.parametrize(
    "wrong, says",
    [
        ("", "no tool's name"),
        ("(x)", "no tool's name"),
        ("/[/", "isn't a regular expression"),
        ("/open", "isn't closed"),
        ("file_[", "isn't closed"),
        ("Bash(npm *", "parentheses"),
        ("Bash()", "empty"),
        ("/x/y", "parentheses"),
        ("Bash(a = b)", "double quotes"),
        ("Bash(FOO=1 npm)", "left over"),
        ('Bash(a = "x" b = "y")', "left over"),
        ('Bash(a = "x",)', "isn't a condition"),
        ("Bash(a ~ 5)", "double quotes"),
        ('Bash(a =~ "(")', "isn't a regular expression"),
        ('Bash(a = "\\q")', "double quotes"),
    ],
)
def test_what_is_not_a_pattern_is_told(wrong: str, says: str) -> None:
    with pytest.raises(BadPattern, match=says):
        parse_pattern(wrong)


# --- which wins -----------------------------------------------------------------------------------


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
        ([('Bash(command = "rm -rf x")', ALLOW), ("Bash(rm -rf *)", DENY)], ALLOW),
        ([("Bash", ALLOW), ("Bash", DENY)], DENY),
        ([("Bash", ASK), ("Bash", ALLOW)], ALLOW),
        ([("Bash", ASK), ("Bash", ALLOW), ("Bash", DENY)], DENY),
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


def test_exactly_these_arguments_are_the_most_specific_of_a_tool() -> None:
    exactly = rule("Bash", ALLOW, {"command": "rm x", "force": True})
    rules = [rule('Bash(command = "rm x")', DENY), exactly]
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
        ([("Bash(npm *)", ASK)], DENY, False),
    ],
)
def test_a_tool_that_never_runs_is_known(
    rules: list[tuple[str, Behavior]], default: Behavior, hidden: bool
) -> None:
    assert never_runs("Bash", [rule(*each) for each in rules], default) is hidden
