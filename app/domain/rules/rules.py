"""Permission rules: which calls run, which need approval, and which are denied.

A rule has a pattern and a behavior. Of the matching rules the most specific one wins; among equals deny wins
over allow, and allow over ask.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from app.domain.json_values import JsonObject
from app.domain.rules.patterns import Arguments, Pattern, Specificity


class Behavior(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_RANK_AMONG_EQUALS = {Behavior.ASK: 0, Behavior.ALLOW: 1, Behavior.DENY: 2}


class Rule(Struct, frozen=True, kw_only=True):
    """The behavior for the calls that a pattern matches; with `arguments`, only for exactly those."""

    pattern: Pattern
    behavior: Behavior
    arguments: JsonObject | None = None
    reason: str | None = None

    def fits(self, name: str, arguments: Arguments) -> bool:
        if self.arguments is not None and not arguments.are(self.arguments):
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
        return (*name, exactly, *rest, _RANK_AMONG_EQUALS[self.behavior])


def rank_of(rule: Rule) -> Specificity:
    """Sorts rules by rank. Rules with different behaviors never have the same rank."""
    return rule.rank


def decide_by_rules(
    name: str, arguments: JsonObject, rules: Iterable[Rule], schema: JsonObject | None = None
) -> Rule | None:
    """The rule that decides about a call, if one matches. `schema` is that of the tool's arguments."""
    of_call = Arguments(arguments, schema)
    fitting = [rule for rule in rules if rule.fits(name, of_call)]
    return max(fitting, key=rank_of, default=None)


def denied_by_rule(rule: Rule | None) -> str:
    """What the model reads of a call that a rule denies."""
    return f"Denied: {(rule and rule.reason) or 'a rule forbids this call'}"


def never_runs(name: str, rules: Sequence[Rule], default: Behavior) -> bool:
    """Whether every call of a tool is denied, for any arguments."""
    matching = [rule for rule in rules if rule.pattern.name.fits(name)]
    flat = max(
        (rule for rule in matching if rule.is_unconditional),
        key=rank_of,
        default=None,
    )
    if (default if flat is None else flat.behavior) is not Behavior.DENY:
        return False
    # A rule with a lower rank than the denial has no effect.
    return all(
        rule.behavior is Behavior.DENY
        or (flat is not None and max(rule, flat, key=rank_of) is flat)
        for rule in matching
    )
