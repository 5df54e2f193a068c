"""A decision reaches a remote agent as the next user message."""

from typing import Any

import pytest

from app.backends.remote.questions import answer_as_message, was_answered_by, without_answers
from app.domain.ids import MessageId
from app.domain.threads.messages import Base64Source, Media, Message, Role, Text
from app.domain.tickets.decisions import (
    EXPIRED,
    Action,
    Decision,
    DecisionAnswer,
    decision_id_of_message,
)
from app.domain.tickets.tickets import Ticket, TicketKind
from tests.support.logs import message
from tests.support.records import AT, a_ticket


def answered(action: Action, kind: TicketKind = TicketKind.INPUT, **more: Any) -> Ticket:
    answer = DecisionAnswer(action=action, **more)
    decision_id = decision_id_of_message(MessageId("m"))
    decision = Decision(decision_id=decision_id, answer=answer, subject="ann", at=AT)
    return a_ticket(kind=kind, decision=decision)


def words(ticket: Ticket) -> str:
    sent = answer_as_message(ticket, MessageId("next"))
    assert (sent.id, sent.role) == ("next", Role.USER)
    return sent.text


@pytest.mark.parametrize(
    "ticket, sent",
    [
        (answered(Action.APPROVE), "Approved."),
        (answered(Action.APPROVE, result="by train"), "by train"),
        (answered(Action.APPROVE, result={"by": "train"}), '{"by":"train"}'),
        (answered(Action.APPROVE, result=""), ""),
        (answered(Action.APPROVE, result=False), "false"),
        (answered(Action.APPROVE, TicketKind.AUTH), "Done."),
        (answered(Action.APPROVE, TicketKind.AUTH, result="logged in"), "logged in"),
        (answered(Action.RESPOND, result="by train"), "by train"),
        (answered(Action.RESPOND, result=[1]), "[1]"),
        (answered(Action.EDIT, arguments={"a": 1}, result="x"), '{"a":1}'),
        (answered(Action.REJECT, reason="too far"), "Denied: too far"),
        (answered(Action.CANCEL), "Denied: a person rejected this call"),
        (a_ticket(), EXPIRED),
    ],
)
def test_a_remote_agent_reads_the_decision(ticket: Ticket, sent: str) -> None:
    assert words(ticket) == sent


def test_a_decision_that_is_also_a_message_is_recognised() -> None:
    ticket = answered(Action.RESPOND, result="x")
    assert was_answered_by(ticket, [message("a", Role.USER), message("m", Role.USER)])
    assert not was_answered_by(ticket, [message("a", Role.USER)])
    assert not was_answered_by(ticket, [])
    assert not was_answered_by(a_ticket(), [message("m", Role.USER)])


PICTURE = Media("image", Base64Source("image/png", "iVBORw=="), "dot.png")


def in_words(id: str, *blocks: Text | Media) -> Message:
    return Message(id=MessageId(id), role=Role.USER, content=blocks)


def test_messages_that_are_no_answer_stay() -> None:
    ticket = answered(Action.RESPOND, result="x")
    others = [in_words("a", Text("x")), in_words("b", Text("hurry"), PICTURE)]
    assert without_answers([ticket], others) == others
    assert without_answers([], others) == others
    assert without_answers([a_ticket()], others) == others


def test_a_message_that_is_an_answer_leaves_only_its_pictures() -> None:
    ticket = answered(Action.RESPOND, result="this one")
    assert without_answers([ticket], [in_words("m", Text("this one"))]) == []
    both = [in_words("m", Text("this one"), PICTURE), in_words("n", Text("this one"))]
    assert without_answers([ticket], both) == [in_words("m", PICTURE), both[1]]


def test_several_messages_may_be_one_answer() -> None:
    ticket = answered(Action.RESPOND, result="this\n\none")
    sent = [in_words("m", Text("this")), in_words("n", PICTURE), in_words("o", Text("one"))]
    assert without_answers([ticket], sent) == [sent[1]]
    assert without_answers([ticket], [*sent, in_words("p", Text("one"))]) == [
        sent[1],
        in_words("p", Text("one")),
    ]
    assert without_answers([ticket], [in_words("m", Text("this\n\none"))]) == []


def test_a_text_that_only_begins_as_the_answer_does_stays() -> None:
    ticket = answered(Action.RESPOND, result="this")
    sent = [in_words("m", Text("this")), in_words("n", Text("this one"))]
    assert without_answers([ticket], sent) == [sent[1]]
