"""Permission rules: which calls run, which are asked about, which are denied.

A rule is a pattern and a behavior. Of the rules that fit, the most specific wins; among equals deny,
then allow, then ask.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.domain.json_values import JsonObject
from app.domain.rules.patterns import Arguments, Pattern, Specificity


class Behavior(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_AMONG_EQUALS = {Behavior.ASK: 0, Behavior.ALLOW: 1, Behavior.DENY: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to the calls that a pattern means; with `arguments`, only to exactly those."""

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
        return (*name, exactly, *rest, _AMONG_EQUALS[self.behavior])


def decide_by_rules(name: str, arguments: JsonObject, rules: Iterable[Rule]) -> Rule | None:
    """The rule that decides about a call, if any does."""
    of_call = Arguments(arguments)
    fitting = [rule for rule in rules if rule.fits(name, of_call)]
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
