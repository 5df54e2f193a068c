"""Remembered decisions: the scope of their rules, and which later calls they match."""

import pytest

from app.domain.ids import RuleId
from app.domain.rules.patterns import Arguments
from app.domain.rules.remembered import Match, Remember, RememberedRule, RuleScope, rule_of_answer
from app.domain.rules.rules import Behavior
from app.domain.tickets.decisions import Action
from tests.support.records import AT, a_ticket


def remembered(
    remember: Remember, action: Action = Action.APPROVE, **ticket: object
) -> RememberedRule:
    return rule_of_answer(
        a_ticket(**ticket), action, remember, id=RuleId("rule"), by="ann", at=AT, reason="fine"
    )


@pytest.mark.parametrize(
    "scope, place",
    [(RuleScope.RUN, "run"), (RuleScope.THREAD, "thread"), (RuleScope.AGENT, "clerk")],
)
def test_a_rule_applies_within_its_scope(scope: RuleScope, place: str) -> None:
    rule = remembered(Remember(scope))
    assert (rule.scope, rule.scope_id, rule.agent_id) == (scope, place, "clerk")
    assert (rule.ticket, rule.created_by, rule.created_at) == ("key", "ann", AT)
    assert rule.rule.reason == "fine"


@pytest.mark.parametrize(
    "action, behavior", [(Action.APPROVE, Behavior.ALLOW), (Action.REJECT, Behavior.DENY)]
)
def test_a_decision_sets_the_behavior_of_its_rule(action: Action, behavior: Behavior) -> None:
    assert remembered(Remember(RuleScope.RUN), action).rule.behavior is behavior


def test_a_rule_for_the_tool_fits_every_call_of_it_and_of_no_other() -> None:
    rule = remembered(Remember(RuleScope.RUN)).rule
    assert rule.fits("pay", Arguments({"amount": 5}))
    assert rule.fits("pay", Arguments({}))
    assert not rule.fits("pays", Arguments({"amount": 5}))


def test_a_rule_for_arguments_fits_only_calls_with_exactly_these() -> None:
    rule = remembered(Remember(RuleScope.RUN, Match.ARGUMENTS)).rule
    assert rule.fits("pay", Arguments({"amount": 5}))
    assert not rule.fits("pay", Arguments({"amount": 6}))
    assert not rule.fits("pay", Arguments({"amount": 5, "to": "bob"}))
    assert not rule.fits("refund", Arguments({"amount": 5}))


def test_arguments_that_arent_an_object_count_as_none() -> None:
    rule = remembered(Remember(RuleScope.RUN, Match.ARGUMENTS), arguments=[1]).rule
    assert rule.fits("pay", Arguments({}))
    assert not rule.fits("pay", Arguments({"amount": 5}))
