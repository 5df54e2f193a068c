"""A decision without an id gets one from what it says: sent again, it is the same decision."""

from app.domain.tickets.decisions import Action, DecisionAnswer, denial, derived_decision_id

APPROVE = DecisionAnswer(action=Action.APPROVE)
ID = derived_decision_id("ticket", APPROVE, "ann")


def test_the_same_answer_again_is_the_same_decision() -> None:
    assert derived_decision_id("ticket", DecisionAnswer(action=Action.APPROVE), "ann") == ID


def test_another_ticket_action_payload_or_person_is_another_decision() -> None:
    others = {
        derived_decision_id("other", APPROVE, "ann"),
        derived_decision_id("ticket", APPROVE, "bob"),
        derived_decision_id("ticket", DecisionAnswer(action=Action.CANCEL), "ann"),
        derived_decision_id("ticket", DecisionAnswer(action=Action.RESPOND, result=1), "ann"),
        derived_decision_id("ticket", DecisionAnswer(action=Action.RESPOND, result=2), "ann"),
        derived_decision_id(
            "ticket", DecisionAnswer(action=Action.EDIT, arguments={"a": 1}), "ann"
        ),
        derived_decision_id(
            "ticket", DecisionAnswer(action=Action.EDIT, arguments={"a": 2}), "ann"
        ),
    }
    assert len(others | {ID}) == 8


def test_the_order_of_keys_and_the_reason_make_no_other_decision() -> None:
    one = DecisionAnswer(action=Action.EDIT, arguments={"a": 1, "b": 2})
    same = DecisionAnswer(action=Action.EDIT, arguments={"b": 2, "a": 1}, reason="because")
    assert derived_decision_id("t", one, "ann") == derived_decision_id("t", same, "ann")


def test_the_payload_of_an_edit_is_its_arguments() -> None:
    assert DecisionAnswer(action=Action.EDIT, arguments={"a": 1}, result=2).payload == {"a": 1}
    assert DecisionAnswer(action=Action.RESPOND, arguments={"a": 1}, result=2).payload == 2


def test_the_model_is_told_why_it_was_denied() -> None:
    assert denial(DecisionAnswer(action=Action.REJECT, reason="not today")) == "Denied: not today"
    assert denial(DecisionAnswer(action=Action.REJECT)).startswith("Denied: ")
