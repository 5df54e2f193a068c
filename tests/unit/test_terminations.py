"""Terminations have one JSON form and survive a round trip."""

import pytest

from app.domain.runs.terminations import (
    BehaviorRequested,
    Blocked,
    Cancelled,
    Failed,
    NaturalEnd,
    Outcome,
    Stopped,
    Termination,
    outcome,
    status_reason,
    termination_from_json,
    termination_to_json,
)

ENDINGS: list[tuple[Termination, dict[str, str], str, Outcome]] = [
    (NaturalEnd(), {"type": "natural_end"}, "natural", Outcome.SUCCEEDED),
    (
        BehaviorRequested(),
        {"type": "behavior_requested"},
        "behavior_requested",
        Outcome.SUCCEEDED,
    ),
    (
        Stopped("max_rounds", "16 rounds were used"),
        {"type": "stopped", "code": "max_rounds", "detail": "16 rounds were used"},
        "stopped:max_rounds",
        Outcome.BUDGET_EXCEEDED,
    ),
    (
        Stopped("timeout"),
        {"type": "stopped", "code": "timeout"},
        "stopped:timeout",
        Outcome.BUDGET_EXCEEDED,
    ),
    (Cancelled(), {"type": "cancelled"}, "cancelled", Outcome.CANCELLED),
    (
        Cancelled("changed my mind"),
        {"type": "cancelled", "detail": "changed my mind"},
        "cancelled",
        Outcome.CANCELLED,
    ),
    (
        Blocked("not allowed"),
        {"type": "blocked", "detail": "not allowed"},
        "blocked:not allowed",
        Outcome.BLOCKED,
    ),
    (
        Failed("rate_limited", "429"),
        {"type": "error", "code": "rate_limited", "detail": "429"},
        "error",
        Outcome.FAILED,
    ),
]


@pytest.mark.parametrize("ending, body, reason, word", ENDINGS)
def test_a_termination_survives_a_round_trip(
    ending: Termination, body: dict[str, str], reason: str, word: Outcome
) -> None:
    assert termination_to_json(ending) == body
    assert termination_from_json(body) == ending
    assert status_reason(ending) == reason
    assert outcome(ending) is word


def test_a_termination_of_an_unknown_kind_is_read_as_an_error() -> None:
    assert termination_from_json({"type": "new", "detail": "?"}) == Failed("error", "?")
