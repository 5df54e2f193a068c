"""What a remote agent reads of a person's answer: it is the user's next message there."""

from typing import Any

import pytest

from app.backends.remote.questions import answer_as_message, was_answered_by
from app.domain.ids import MessageId
from app.domain.threads.messages import Role
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
    told = answer_as_message(ticket, MessageId("next"))
    assert (told.id, told.role) == ("next", Role.USER)
    return told.text


@pytest.mark.parametrize(
    "ticket, told",
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
def test_a_remote_reads_what_the_person_gave(ticket: Ticket, told: str) -> None:
    assert words(ticket) == told


def test_a_message_that_was_the_answer_isnt_sent_twice() -> None:
    ticket = answered(Action.RESPOND, result="x")
    assert was_answered_by(ticket, [message("a", Role.USER), message("m", Role.USER)])
    assert not was_answered_by(ticket, [message("a", Role.USER)])
    assert not was_answered_by(ticket, [])
    assert not was_answered_by(a_ticket(), [message("m", Role.USER)])
