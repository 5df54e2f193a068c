"""`run_finish` of a suspension says who has to act."""

import pytest

from app.clock import SystemClock
from app.domain.checkpoints import CheckpointSaved, PendingEvent, finish_as_saved
from app.domain.events.run_events import RunFinish
from app.domain.events.run_finish import (
    MAX_TITLE_CHARACTERS,
    finish_done,
    finish_suspended,
    title_of,
)
from app.domain.json_values import JsonObject
from app.domain.runs.runs import Waiting, WaitingReason
from app.domain.runs.terminations import (
    Blocked,
    Cancelled,
    Failed,
    NaturalEnd,
    Stopped,
    Termination,
)
from app.domain.tickets.tickets import Ticket, TicketKind
from tests.support.records import a_record, a_ticket

AT = SystemClock().now()


def waiting_of(reason: WaitingReason, *tickets: Ticket, detail: str = "") -> JsonObject:
    state = Waiting(reason, reason.value, AT if reason is WaitingReason.RATE_LIMIT else None)
    shown = finish_suspended(a_record(), state, tickets, detail=detail).waiting
    assert shown is not None
    return shown


def test_tickets_of_people_are_named_with_their_title() -> None:
    asked = a_ticket(message="May I?")
    child = a_ticket(kind=TicketKind.CHILD)
    shown = waiting_of(WaitingReason.TOOL_PERMISSION, asked, child)
    assert shown["needs_decision"] is True
    assert shown["tickets"] == [{"id": asked.id, "name": "c1", "title": "May I?"}]


@pytest.mark.parametrize(
    ("reason", "needs_decision"),
    [(reason, reason is WaitingReason.MANUAL_PAUSE) for reason in WaitingReason],
    ids=lambda value: str(value),
)
def test_a_wait_without_tickets_needs_a_person_only_for_a_pause(
    reason: WaitingReason, needs_decision: bool
) -> None:
    shown = waiting_of(reason)
    assert (shown["reason"], shown["needs_decision"]) == (reason.value, needs_decision)
    assert shown["tickets"] == []


@pytest.mark.parametrize(
    ("termination", "outcome"),
    [
        (NaturalEnd(), "succeeded"),
        (Stopped("max_rounds"), "budget_exceeded"),
        (Cancelled(), "cancelled"),
        (Blocked("no"), "blocked"),
        (Failed("error", "broken"), "failed"),
    ],
)
def test_an_end_has_the_words_of_the_run_that_it_ends(
    termination: Termination, outcome: str
) -> None:
    finish = finish_done(a_record(), termination, {"response": ""})
    assert (finish.status, finish.outcome) == ("done", outcome)


def test_a_suspension_is_a_waiting_run_without_an_outcome() -> None:
    waiting = Waiting(WaitingReason.CHILD_RUNS, "awaiting_children")
    finish = finish_suspended(a_record(), waiting, [])
    assert (finish.status, finish.outcome, finish.termination["type"]) == (
        "waiting",
        None,
        "suspended",
    )


def test_a_wait_for_a_time_or_a_version_shows_its_details() -> None:
    limited = waiting_of(WaitingReason.RATE_LIMIT, detail="Model m is busy.")
    assert limited["detail"] == "Model m is busy."
    assert limited["until"].endswith("Z")
    assert "until" not in waiting_of(WaitingReason.AGENT_VERSION_UNAVAILABLE, detail="Missing.")


def test_a_pause_that_came_before_the_commit_makes_it_a_wait_for_a_person() -> None:
    finish = finish_suspended(
        a_record(), Waiting(WaitingReason.CHILD_RUNS, "awaiting_children"), []
    )
    for is_paused in (False, True):
        saved = finish_as_saved(PendingEvent(finish, None), CheckpointSaved(is_paused=is_paused))
        assert isinstance(saved.event, RunFinish)
        assert saved.event.waiting is not None
        assert saved.event.waiting["needs_decision"] is is_paused


def test_a_title_is_one_short_line() -> None:
    assert title_of("  Delete it?\nReally") == "Delete it?"
    assert title_of("x" * MAX_TITLE_CHARACTERS) == "x" * MAX_TITLE_CHARACTERS
    long = title_of("x" * (MAX_TITLE_CHARACTERS + 1))
    assert (len(long), long[-1]) == (MAX_TITLE_CHARACTERS, "…")
