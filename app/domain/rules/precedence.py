"""Finds rules that deny or ask without effect, because a more specific rule allows all of their calls."""

from collections.abc import Mapping, Sequence

from app.domain.json_values import JsonObject
from app.domain.rules.rules import Behavior, Rule, rank_of


def outranked_by(rule: Rule, rules: Sequence[Rule], tools: Mapping[str, JsonObject]) -> Rule | None:
    """The more specific rule that wins over `rule` for each of its calls; None if there is none.

    Only a rule that denies or asks is checked: one without effect is a mistake.
    """
    if rule.behavior is Behavior.ALLOW:
        return None
    winner: Rule | None = None
    for name in (each for each in tools if rule.pattern.name.fits(each)):
        stronger = next((other for other in rules if _always_wins(other, rule, name)), None)
        if stronger is None:
            return None
        winner = winner or stronger
    return winner


def _always_wins(other: Rule, rule: Rule, tool: str) -> bool:
    milder = {Behavior.DENY: (Behavior.ALLOW, Behavior.ASK), Behavior.ASK: (Behavior.ALLOW,)}
    return (
        other.behavior in milder[rule.behavior]
        and other.is_unconditional
        and other.pattern.name.fits(tool)
        and max(rule, other, key=rank_of) is other
    )
