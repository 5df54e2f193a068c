"""Tickets: which keep their run waiting, when the run can continue, and how they are shown."""

from datetime import timedelta

import pytest

from app.domain.ids import CallId
from app.domain.tickets.decisions import Action
from app.domain.tickets.opening import allowed_actions, free_name, ticket_as_opened, ticket_name
from app.domain.tickets.terms import ApproverRule, OnExpiry, TicketTerms
from app.domain.tickets.ticket_json import ticket_to_json
from app.domain.tickets.tickets import (
    APPROVE_ACTION,
    ASK_ACTION,
    Ticket,
    TicketKind,
    TicketStatus,
    can_resume,
)
from app.domain.tools.tool_calls import ResumeMode, SuspensionRequest
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


def test_only_a_ticket_that_expires_says_what_happens_then() -> None:
    terms = TicketTerms(on_expiry=OnExpiry.CANCEL_RUN)
    assert a_ticket(terms=terms, expires_at=AT).on_expiry is OnExpiry.CANCEL_RUN
    assert a_ticket(terms=terms).on_expiry is None


@pytest.mark.parametrize(
    "tickets, continues",
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
def test_a_run_can_continue_with_a_decision_and_no_open_limit_ticket(
    tickets: list[Ticket], continues: bool
) -> None:
    assert can_resume(tickets) is continues


@pytest.mark.parametrize(
    "kind, reason, answers",
    [
        (TicketKind.APPROVAL, APPROVE_ACTION, {Action.APPROVE, Action.EDIT}),
        (TicketKind.INPUT, ASK_ACTION, {Action.RESPOND}),
        (TicketKind.INPUT, "other", {Action.APPROVE, Action.EDIT, Action.RESPOND}),
    ],
)
def test_a_question_of_a_tool_is_approved_or_answered(
    kind: TicketKind, reason: str, answers: set[Action]
) -> None:
    allowed = allowed_actions(kind, ResumeMode.PASS_DECISION_TO_TOOL, reason)
    assert allowed == {*answers, Action.REJECT, Action.CANCEL}


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
def test_a_ticket_takes_the_given_name_else_the_id_of_its_call(
    asked: str | None, taken: tuple[str, ...], name: str
) -> None:
    suspension = SuspensionRequest("May I?", suspension_id=asked)
    assert ticket_name(suspension, CallId("c1"), taken) == name


def test_unset_fields_of_a_ticket_are_left_out() -> None:
    assert set(ticket_to_json(OPEN)) == {
        "id",
        "name",
        "run_id",
        "thread_id",
        "agent_id",
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
def test_only_set_terms_are_shown(ticket: Ticket, shown: dict[str, object]) -> None:
    body = ticket_to_json(ticket)
    terms = {"approvers", "expires_at", "expires_in", "on_expiry"}
    assert {key: value for key, value in body.items() if key in terms} == shown


def test_a_decided_ticket_can_be_shown_as_it_was_opened() -> None:
    answered = a_ticket(
        status=TicketStatus.DECIDED, updated_at=AT + timedelta(seconds=1), applied_at=AT
    )
    assert ticket_as_opened(answered) == OPEN
