"""A decision without an id gets one from its content, so a repetition is the same decision."""

from app.domain.tickets.decisions import Action, DecisionAnswer, denial, derived_decision_id

APPROVE = DecisionAnswer(action=Action.APPROVE)
ID = derived_decision_id("ticket", APPROVE, "ann")


def test_a_repeated_answer_has_the_same_decision_id() -> None:
    assert derived_decision_id("ticket", DecisionAnswer(action=Action.APPROVE), "ann") == ID


def test_another_ticket_action_payload_or_person_gives_another_id() -> None:
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


def test_the_order_of_keys_and_the_reason_do_not_change_the_id() -> None:
    one = DecisionAnswer(action=Action.EDIT, arguments={"a": 1, "b": 2})
    same = DecisionAnswer(action=Action.EDIT, arguments={"b": 2, "a": 1}, reason="because")
    assert derived_decision_id("t", one, "ann") == derived_decision_id("t", same, "ann")


def test_the_payload_of_an_edit_is_its_arguments() -> None:
    assert DecisionAnswer(action=Action.EDIT, arguments={"a": 1}, result=2).payload == {"a": 1}
    assert DecisionAnswer(action=Action.RESPOND, arguments={"a": 1}, result=2).payload == 2


def test_the_model_reads_why_a_call_was_denied() -> None:
    assert denial(DecisionAnswer(action=Action.REJECT, reason="not today")) == "Denied: not today"
    assert denial(DecisionAnswer(action=Action.REJECT)).startswith("Denied: ")
