"""Tickets: which still hold up their run, when the run can go on, and what is shown of them."""

from datetime import timedelta

import pytest

from app.domain.ids import CallId
from app.domain.tickets.terms import ApproverRule, OnExpiry, TicketTerms
from app.domain.tickets.tickets import (
    Ticket,
    TicketKind,
    TicketStatus,
    can_resume,
    free_name,
    suspension_to_json,
    ticket_as_opened,
    ticket_name,
    ticket_to_json,
)
from app.domain.tools.tool_calls import SuspensionRequest
from tests.support.records import AT, a_ticket

OPEN = a_ticket()
DECIDED = a_ticket(status=TicketStatus.DECIDED)
EXPIRED = a_ticket(status=TicketStatus.EXPIRED)
APPLIED = a_ticket(status=TicketStatus.DECIDED, applied_at=AT)
LIMIT = a_ticket(kind=TicketKind.LIMIT, call_id=None)
RAISED = a_ticket(kind=TicketKind.LIMIT, call_id=None, status=TicketStatus.DECIDED)


@pytest.mark.parametrize("status", list(TicketStatus))
def test_a_ticket_is_unsettled_until_its_answer_is_applied(status: TicketStatus) -> None:
    has_answer = status in (TicketStatus.DECIDED, TicketStatus.EXPIRED)
    assert a_ticket(status=status).is_unsettled is (has_answer or status is TicketStatus.OPEN)
    if has_answer:
        assert not a_ticket(status=status, applied_at=AT).is_unsettled


@pytest.mark.parametrize(
    "tickets, goes_on",
    [
        ([], False),
        ([OPEN], False),
        ([DECIDED], True),
        ([EXPIRED], True),
        ([APPLIED], False),
        ([OPEN, DECIDED], True),
        ([DECIDED, OPEN], True),
        ([OPEN, APPLIED], False),
        ([LIMIT], False),
        ([RAISED], True),
        ([LIMIT, DECIDED], False),
        ([DECIDED, LIMIT, OPEN], False),
        ([RAISED, OPEN], True),
    ],
)
def test_a_run_goes_on_with_an_answer_and_no_open_question_about_a_limit(
    tickets: list[Ticket], goes_on: bool
) -> None:
    assert can_resume(tickets) is goes_on


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert free_name("ask", ()) == "ask"
    assert free_name("ask", {"ask"}) == "ask:2"
    assert free_name("ask", {"ask", "ask:2"}) == "ask:3"


@pytest.mark.parametrize(
    "asked, taken, name",
    [
        (None, (), "c1"),
        ("  ", (), "c1"),
        (" mine ", (), "mine"),
        ("mine", ("mine",), "mine:c1"),
        ("mine", ("mine", "mine:c1"), "mine:c1:2"),
        (None, ("c1",), "c1:2"),
        ("mine:c1", ("mine:c1",), "mine:c1:2"),
    ],
)
def test_a_ticket_is_named_by_who_asks_else_by_its_call(
    asked: str | None, taken: tuple[str, ...], name: str
) -> None:
    suspension = SuspensionRequest("May I?", suspension_id=asked)
    assert ticket_name(suspension, CallId("c1"), taken) == name


def test_the_result_of_a_call_shows_its_question() -> None:
    schema = {"type": "string"}
    assert suspension_to_json(a_ticket(reason="ask", response_schema=schema)) == {
        "suspension": {
            "id": "c1",
            "action": "ask",
            "message": "Pay 5?",
            "parameters": {"amount": 5},
            "response_schema": schema,
        },
        "pending": {"id": "c1", "name": "pay", "arguments": {"amount": 5}},
        "resume_mode": "replay_tool_call",
    }
    assert set(suspension_to_json(OPEN)["suspension"]) == {"id", "message", "parameters"}


def test_what_a_ticket_doesnt_have_is_left_out() -> None:
    assert set(ticket_to_json(OPEN)) == {
        "id",
        "ticket_id",
        "kind",
        "tool_call_id",
        "tool_name",
        "arguments",
        "args_digest",
        "resume_mode",
        "allowed_actions",
        "message",
        "updated_at",
    }


@pytest.mark.parametrize(
    "ticket, shown",
    [
        (a_ticket(terms=TicketTerms(on_expiry=OnExpiry.KEEP)), {}),
        (
            a_ticket(terms=TicketTerms(expires_in=5.0, on_expiry=OnExpiry.KEEP)),
            {"expires_in": 5.0, "on_expiry": "keep"},
        ),
        (
            a_ticket(terms=TicketTerms(expires_in=5.0), expires_at=AT + timedelta(seconds=5)),
            {"expires_at": "2030-01-02T03:04:10.000Z", "on_expiry": "reject"},
        ),
        (
            a_ticket(terms=TicketTerms(approvers=ApproverRule(quorum=2))),
            {"approvers": {"quorum": 2}},
        ),
        (a_ticket(terms=TicketTerms(approvers=ApproverRule())), {"approvers": {}}),
    ],
)
def test_terms_are_shown_as_far_as_they_are_set(ticket: Ticket, shown: dict[str, object]) -> None:
    body = ticket_to_json(ticket)
    terms = {"approvers", "expires_at", "expires_in", "on_expiry"}
    assert {key: value for key, value in body.items() if key in terms} == shown


def test_a_question_can_be_shown_as_it_was_asked() -> None:
    answered = a_ticket(
        status=TicketStatus.DECIDED, updated_at=AT + timedelta(seconds=1), applied_at=AT
    )
    assert ticket_as_opened(answered) == OPEN
