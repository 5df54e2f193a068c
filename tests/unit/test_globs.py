"""Globs: what they match, and that no text of a model makes matching slow."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.rules.globs import BadGlob, Glob
from app.domain.rules.linear_regex import LinearRegex
from app.domain.rules.parser import parse_pattern
from app.domain.rules.rules import Behavior, Rule, decide_by_rules
from tests.support.work_ratio import within_a_pause

GLOBS = st.text("ab*?-", max_size=8) | st.lists(
    st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[a-c]", "[!a-b]", "\n"]), max_size=8
).map("".join)


@given(GLOBS, st.text("abc\n", max_size=12))
def test_a_glob_matches_what_fnmatch_matches(glob: str, text: str) -> None:
    assert Glob(glob).fits(text) is fnmatch.fnmatchcase(text, glob)


def test_a_literal_may_be_found_at_the_beginning() -> None:
    assert Glob("*a*").fits("abc")
    assert Glob("*a*b*").fits("ab")
    assert Glob("a*").fits("a")
    assert not Glob("*a*a*").fits("a")


@pytest.mark.parametrize(
    "glob, fitting, other",
    [
        ("*?*?*", "ab", "a"),
        ("*[ab]*b", "ab", "xb"),
        ("*[ab]*[ab]*[ab]*", "aba", "ab"),
        ("[]a]", "]", "b"),
        ("[ab]cd", "acd", "ad"),
        ("[a-]", "-", "b"),
        ("[a-]", "a", "b"),
        ("[a-cx]", "x", "d"),
    ],
)
def test_each_element_of_a_glob_matches_one_character(glob: str, fitting: str, other: str) -> None:
    assert Glob(glob).fits(fitting)
    assert not Glob(glob).fits(other)


@pytest.mark.parametrize("wrong", ["[", "a[b", "[!", "[z-a]", "[!]"])
def test_an_invalid_glob_is_refused(wrong: str) -> None:
    with pytest.raises(BadGlob):
        Glob(wrong)


@pytest.mark.parametrize(
    "glob, text",
    [
        ("*rm*-rf*/*", "rm -rf " * 6_000),
        ("*" + "a*" * 400 + "b", "a" * 250_000),
        ("*" + "ab*" * 300 + "c", "ab" * 125_000),
        ("*" + "a" * 400 + "?b*", "a" * 100_000),
        ("*" + "[ab]" * 200 + "c*", "ab" * 50_000),
        ("*?a" * 200 + "*c", "a" * 100_000),
    ],
)
def test_a_long_text_is_matched_within_the_allowed_pause(glob: str, text: str) -> None:
    assert within_a_pause(lambda: Glob(glob).fits(text)) is False


@pytest.mark.parametrize(
    "pattern, argument",
    [
        ("sh(*rm*-rf*/*)", "rm -rf " * 6_000),
        ('sh(command =~ "(a+)+$")', "a" * 40_000 + "b"),
        (r'sh(command =~ "(\\w+\\s?)+!")', "word " * 20_000),
        ('sh(command ~ "*../*x")', "../" * 30_000),
    ],
)
def test_a_rule_about_a_long_argument_decides_within_the_allowed_pause(
    pattern: str, argument: str
) -> None:
    rules = [Rule(pattern=parse_pattern(pattern), behavior=Behavior.DENY)] * 20
    assert within_a_pause(lambda: decide_by_rules("sh", {"command": argument}, rules)) is None


@pytest.mark.parametrize("operator", ["=~", "!=~"])
def test_an_argument_too_long_to_match_is_denied_or_asked_about_never_allowed(
    operator: str,
) -> None:
    pattern = parse_pattern(f'sh(command {operator} "rm")')
    for text in ("rm " * 50_000, "ls " * 50_000):
        for behavior in Behavior:
            found = decide_by_rules(
                "sh", {"command": text}, [Rule(pattern=pattern, behavior=behavior)]
            )
            assert (found is None) is (behavior is Behavior.ALLOW)


@pytest.mark.parametrize("expression", ["(?=a)b", r"(a)\\1", "a(?<!b)", "(?>a)", "(", r"a\\Z"])
def test_an_expression_that_needs_backtracking_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="isn't a regular expression that can be used"):
        parse_pattern(f'sh(command =~ "{expression}")')


def test_the_argument_texts_of_a_call_are_computed_once_for_all_rules() -> None:
    """This includes rules for the exact arguments of one call."""
    arguments = {"list": list(range(20_000)), "path": "a/../" * 10_000}
    globs = [Rule(pattern=parse_pattern('sh(list ~ "*y" and path ~ "b")'), behavior=Behavior.ALLOW)]
    exact = [
        Rule(pattern=parse_pattern("sh"), behavior=Behavior.ALLOW, arguments={**arguments, "n": n})
        for n in range(500)
    ]
    assert within_a_pause(lambda: decide_by_rules("sh", arguments, [*globs * 500, *exact])) is None


def test_compiled_patterns_are_shown_and_compared_by_their_text() -> None:
    assert repr(Glob("a*")) == "Glob(text='a*')"
    assert Glob("a*") == Glob("a*") != Glob("b*")
    assert repr(LinearRegex("a+")) == "LinearRegex(text='a+')"
    assert LinearRegex("a+") == LinearRegex("a+") != LinearRegex("b+")
