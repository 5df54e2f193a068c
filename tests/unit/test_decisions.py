"""Decisions: what they give to a call, which of them let it run, and when two of them agree."""

import pytest

from app.domain.ids import MessageId
from app.domain.tickets.decisions import (
    Action,
    Decision,
    DecisionAnswer,
    decision_id_of_message,
    decision_to_json,
    denial,
)
from tests.support.records import AT


@pytest.mark.parametrize("action", list(Action))
def test_an_edit_gives_arguments_and_every_other_action_a_result(action: Action) -> None:
    payload = DecisionAnswer(action=action, arguments={"amount": 1}, result="paid").payload
    assert payload == ({"amount": 1} if action is Action.EDIT else "paid")


def test_an_approval_may_give_a_result() -> None:
    assert DecisionAnswer(action=Action.APPROVE, result={"tone": "kind"}).payload == {
        "tone": "kind"
    }
    assert DecisionAnswer(action=Action.APPROVE).payload is None


@pytest.mark.parametrize(
    "action, lets_pass",
    [
        (Action.APPROVE, True),
        (Action.EDIT, True),
        (Action.RESPOND, True),
        (Action.REJECT, False),
        (Action.CANCEL, False),
    ],
)
def test_approve_and_edit_let_a_call_run(action: Action, lets_pass: bool) -> None:
    assert DecisionAnswer(action=action).allows_call is lets_pass


def test_decisions_agree_by_action_and_payload_not_by_reason() -> None:
    answer = DecisionAnswer(action=Action.RESPOND, result=1, reason="because")
    assert answer.agrees_with(DecisionAnswer(action=Action.RESPOND, result=1, reason="otherwise"))
    assert not answer.agrees_with(DecisionAnswer(action=Action.RESPOND, result=2, reason="because"))
    assert not answer.agrees_with(DecisionAnswer(action=Action.APPROVE, result=1, reason="because"))
    edit = DecisionAnswer(action=Action.EDIT, arguments={"a": 1}, result=1)
    assert edit.agrees_with(DecisionAnswer(action=Action.EDIT, arguments={"a": 1}, result=2))
    assert not edit.agrees_with(DecisionAnswer(action=Action.EDIT, arguments={"a": 2}, result=1))


def test_a_decision_is_shown_with_its_author_and_its_time() -> None:
    decision = Decision(
        decision_id="d", answer=DecisionAnswer(action=Action.REJECT), subject="ann", at=AT
    )
    assert decision_to_json(decision) == {
        "id": "d",
        "action": "reject",
        "decided_by": "ann",
        "decided_at": AT,
    }
    assert decision_id_of_message(MessageId("m")) == "message:m"


def test_a_model_reads_why_a_call_was_denied() -> None:
    assert denial(DecisionAnswer(action=Action.REJECT, reason="too much")) == "Denied: too much"
    assert denial(DecisionAnswer(action=Action.REJECT)) == "Denied: a person rejected this call"
