"""Questions of MCP servers become one ticket, and its decision becomes the replies."""

from typing import Any

import mcp_types as wire
import pytest

from app.domain.tickets.opening import allowed_actions, kind_of_suspension
from app.domain.tickets.tickets import TicketKind
from app.runtime.ports.call_waits import CarriedReply
from app.tools.mcp.client import InputRequired, Question, QuestionReply
from app.tools.mcp.protocol.conversion import question_of
from app.tools.mcp.questions import (
    MAX_CARRY_BYTES,
    MAX_ROUNDS,
    Asked,
    CallDialogue,
    ExchangeRefused,
    asked_for,
    replies_of,
    suspension_for,
)

FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
AGREE = Question(message="Agree?", schema=FORM)
VISIT = Question(message="Log in.", url="https://login.example/x")


def required(*, state: str = "s", **questions: Any) -> InputRequired:
    return InputRequired(questions=questions, state=state)


def reply(carry: Any, action: Any = "accept", result: Any = None) -> CarriedReply:
    return CarriedReply(carry=carry, action=action, result=result)


def test_one_form_is_a_ticket_with_its_schema_and_carries_the_state() -> None:
    asked = asked_for(required(a=AGREE), "digest", None)
    request = suspension_for({"a": AGREE}, asked, "shop")
    assert (request.message, request.response_schema) == ("shop asks: Agree?", FORM)
    assert kind_of_suspension(request) is TicketKind.INPUT
    assert allowed_actions(TicketKind.INPUT, request.resume_mode, request.action) == {
        "respond",
        "reject",
        "cancel",
    }
    assert request.carry is not None
    again = Asked.from_json(request.carry)
    assert again.state == "s"
    assert replies_of(again, reply({}, result={"ok": True})) == {
        "a": QuestionReply(action="accept", content={"ok": True})
    }


def test_several_forms_are_one_object() -> None:
    both = {"a": AGREE, "b": AGREE}
    asked = asked_for(required(a=AGREE, b=AGREE), "digest", None)
    schema = suspension_for(both, asked, "shop").response_schema
    assert schema is not None
    assert schema["required"] == ["a", "b"]
    replies = replies_of(asked, reply({}, result={"a": {"ok": True}, "b": {"ok": False}}))
    assert [each.content for each in replies.values()] == [{"ok": True}, {"ok": False}]


def test_an_address_is_a_ticket_about_a_visit_and_has_no_content() -> None:
    asked = asked_for(required(a=VISIT), "digest", None)
    request = suspension_for({"a": VISIT}, asked, "shop")
    assert kind_of_suspension(request) is TicketKind.AUTH
    assert "https://login.example/x" in request.message
    assert replies_of(asked, reply({}, result=True)) == {"a": QuestionReply(action="accept")}


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_refusal_is_the_reply_to_each_question(action: str) -> None:
    asked = asked_for(required(a=AGREE, b=AGREE), "digest", None)
    assert {each.action for each in replies_of(asked, reply({}, action)).values()} == {action}


@pytest.mark.parametrize(
    "question",
    [
        Question(message="Visit.", url="file:///etc/passwd"),
        Question(message="Visit.", url="javascript:alert(1)"),
        Question(message="Fill in.", schema={"$ref": "https://x.example/schema"}),
    ],
)
def test_an_unusable_question_is_refused(question: Question) -> None:
    asked = asked_for(required(a=question), "digest", None)
    with pytest.raises(ExchangeRefused):
        suspension_for({"a": question}, asked, "shop")


def test_a_state_that_is_too_large_is_refused() -> None:
    asked = asked_for(required(state="x" * MAX_CARRY_BYTES, a=AGREE), "digest", None)
    with pytest.raises(ExchangeRefused, match="bytes"):
        suspension_for({"a": AGREE}, asked, "shop")


def test_a_server_may_not_ask_without_end() -> None:
    asked = None
    for _ in range(MAX_ROUNDS):
        asked = asked_for(required(a=AGREE), "digest", asked)
    with pytest.raises(ExchangeRefused, match="times"):
        asked_for(required(a=AGREE), "digest", asked)


def test_a_question_in_mid_call_is_cancelled_and_answered_when_it_is_asked_again() -> None:
    first = CallDialogue("digest", [])
    assert first.known_reply(AGREE) is None
    assert first.ask(AGREE).action == "cancel"
    request = first.suspension("shop")
    assert request is not None
    second = CallDialogue("digest", [reply(request.carry, result={"ok": True})])
    assert second.known_reply(AGREE) == QuestionReply(action="accept", content={"ok": True})
    assert second.known_reply(VISIT) is None
    assert second.suspension("shop") is None


def test_names_of_choices_of_older_servers_become_titles() -> None:
    field = {"type": "string", "enum": ["a", "b"], "enumNames": ["One", "Two"]}
    other = {"type": "string", "enum": ["a"], "enumNames": ["One", "Two"]}
    asked = wire.ElicitRequestFormParams(
        message="Which?",
        requested_schema={"type": "object", "properties": {"one": field, "two": other}},
    )
    schema = question_of(asked).schema
    assert schema is not None
    choices = [{"const": "a", "title": "One"}, {"const": "b", "title": "Two"}]
    assert schema["properties"] == {
        "one": {"type": "string", "oneOf": choices},
        "two": {"type": "string", "enum": ["a"]},
    }
