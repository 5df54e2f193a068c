"""Signals: which waits are valid, which tickets a signal answers, and what becomes its status."""

from typing import Any

import pytest

from app.commands.tickets.deliver_signal import outcome_at
from app.commands.tickets.match_signal import payload_problem
from app.domain.errors import EventWaitInvalid
from app.domain.ids import RunId, Tenant, ThreadId, TicketKey
from app.domain.signals import (
    MAX_KEY_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_WAIT_SECONDS,
    EventWait,
    Signal,
    SignalOutcome,
    SignalStatus,
    SignalTicket,
    event_wait_from_json,
    status_of_delivery,
    timeout_message,
    wait_message,
)
from app.domain.structs import replace
from app.domain.tickets.tickets import TicketStatus
from tests.support.records import a_record, a_ticket

SIGNAL = Signal(
    tenant=Tenant("t"), id="s1", name="paid", key="order 1", payload={"sum": 1}, sent_by="shop"
)


@pytest.mark.parametrize(
    "wait",
    [
        {"name": "n", "key": "k"},
        {"name": "n" * MAX_NAME_CHARACTERS, "key": "k" * MAX_KEY_CHARACTERS},
        {"name": "n", "key": "k", "timeout": 0.001},
        {"name": "n", "key": "k", "timeout": MAX_WAIT_SECONDS},
    ],
)
def test_waits_within_the_bounds_are_valid(wait: dict[str, Any]) -> None:
    made = EventWait(**wait)
    assert (made.name, made.key, made.number) == (wait["name"], wait["key"], 0)


@pytest.mark.parametrize(
    "wait, problem",
    [
        ({"name": ""}, "the name of an event has 1 to 200 characters"),
        ({"name": "n" * (MAX_NAME_CHARACTERS + 1)}, "the name of an event"),
        ({"name": 7}, "the name of an event"),
        ({"name": "a\0b"}, "the name of an event"),
        ({"key": ""}, "the key of an event has 1 to 500 characters"),
        ({"key": "k" * (MAX_KEY_CHARACTERS + 1)}, "the key of an event"),
        ({"key": "\ud800"}, "the key of an event"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": -1}, "timeout must be"),
        ({"timeout": MAX_WAIT_SECONDS + 1}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
    ],
)
def test_a_wait_that_no_signal_could_answer_is_refused(wait: dict[str, Any], problem: str) -> None:
    with pytest.raises(EventWaitInvalid, match=problem):
        EventWait(**{"name": "n", "key": "k", **wait})


def test_a_wait_is_read_as_it_was_stored() -> None:
    wait = EventWait(name="n", key="k", number=3, timeout=1.5)
    stored = {"name": "n", "key": "k", "number": 3, "timeout": 1.5}
    assert event_wait_from_json(stored) == wait


def test_messages_name_the_event_and_its_key() -> None:
    assert wait_message(EventWait(name="paid", key="o1")) == (
        "Waits for the event 'paid' with the key 'o1'"
    )
    assert timeout_message("paid", "o1") == (
        "The event 'paid' with the key 'o1' did not come in time"
    )


def test_a_signal_is_the_same_one_if_name_key_and_payload_are() -> None:
    assert SIGNAL.decision_id == "signal:s1"
    assert replace(SIGNAL, id="s2", sent_by="bank").fingerprint == SIGNAL.fingerprint
    for change in ({"name": "shipped"}, {"key": "order 2"}, {"payload": {"sum": 2}}):
        assert replace(SIGNAL, **change).fingerprint != SIGNAL.fingerprint


def delivered(*outcomes: SignalOutcome) -> list[SignalTicket]:
    return [
        SignalTicket(
            ticket=TicketKey(str(place)),
            run_id=RunId("r"),
            thread_id=ThreadId("t"),
            outcome=outcome,
        )
        for place, outcome in enumerate(outcomes)
    ]


@pytest.mark.parametrize(
    "outcomes, status",
    [
        ((), SignalStatus.KEPT),
        ((SignalOutcome.PAYLOAD_MISMATCH, SignalOutcome.VOID), SignalStatus.KEPT),
        ((SignalOutcome.EXPIRED, SignalOutcome.ALREADY_DECIDED), SignalStatus.KEPT),
        ((SignalOutcome.EXPIRED, SignalOutcome.ANSWERED), SignalStatus.ANSWERED),
        ((SignalOutcome.ANSWERED, SignalOutcome.PENDING), SignalStatus.DELIVERING),
    ],
)
def test_a_signal_that_answered_no_ticket_is_kept(
    outcomes: tuple[SignalOutcome, ...], status: SignalStatus
) -> None:
    assert status_of_delivery(delivered(*outcomes)) is status


@pytest.mark.parametrize(
    "status, outcome",
    [
        (TicketStatus.OPEN, SignalOutcome.ANSWERED),
        (TicketStatus.DECIDED, SignalOutcome.ALREADY_DECIDED),
        (TicketStatus.EXPIRED, SignalOutcome.EXPIRED),
        (TicketStatus.VOID, SignalOutcome.VOID),
    ],
)
def test_a_signal_answers_only_open_tickets(status: TicketStatus, outcome: SignalOutcome) -> None:
    ticket = a_ticket(status=status)
    assert outcome_at(a_record(), ticket) is outcome
    assert outcome_at(None, ticket) is SignalOutcome.VOID
    assert outcome_at(a_record(), None) is SignalOutcome.VOID


def test_a_payload_must_fit_the_schema_of_the_ticket() -> None:
    schema = {"type": "object", "required": ["sum"]}
    assert payload_problem(None, "anything") is None
    assert payload_problem(schema, {"sum": 1}) is None
    problem = payload_problem(schema, {})
    assert problem is not None
    assert "sum" in problem


def test_a_schema_that_cannot_be_checked_takes_no_payload() -> None:
    assert payload_problem({"$ref": "http://elsewhere.test/schema"}, {}) is not None
