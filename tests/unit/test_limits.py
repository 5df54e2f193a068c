"""Limits: the current values, what an approval grants, and what a request may set."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.api.schemas.inputs import InputsIn, ThreadMessagesIn
from app.api.schemas.runs.start import StartIn
from app.domain.runs.limits import Limit, OnLimit, RunLimits, limits_to_json
from app.domain.tickets.limit_tickets import proposed_raise

START: dict[str, Any] = {"agent_id": "a", "messages": [{"role": "user", "content": "go"}]}
TEXT: dict[str, Any] = {"messages": START["messages"]}


def test_a_raise_adds_to_the_current_limit() -> None:
    limits = RunLimits({Limit.STEPS: 2, Limit.TOKENS: 10}, OnLimit.ASK)
    raised = limits.raised_by(Limit.STEPS, 3).raised_by(Limit.STEPS, 1)
    assert limits_to_json(raised) == {"steps": 6, "tokens": 10}
    assert limits_to_json(limits) == {"steps": 2, "tokens": 10}


@pytest.mark.parametrize(
    ("own_size", "allowed", "used", "proposed"),
    [(10, 10, 10, 10), (10, 10, 43, 40), (10, 10, 40, 40), (10, 50, 50, 10), (0.5, 0.5, 0.7, 0.5)]
    + [(0, 0, 0, 1), (0, 0, 3, 4)],
)
def test_an_approval_always_raises_the_limit_above_the_usage(
    own_size: float, allowed: float, used: float, proposed: float
) -> None:
    assert proposed_raise(own_size, allowed, used) == proposed
    assert allowed + proposed > used


@pytest.mark.parametrize(
    "wrong",
    [
        {"limits": {"steps": 0}},
        {"limits": {"steps": 1.5}},
        {"limits": {"tokens": -1}},
        {"limits": {"tool_calls": True}},
        {"limits": {"wall_seconds": 0}},
        {"limits": {"cost_usd": 0}},
        {"limits": {"cost_usd": 1_000_001}},
        {"limits": {"cost_usd": "free"}},
        {"on_limit": "ask"},
        {"limits": {}, "on_limit": "stop"},
        {"limits": {"steps": 1}, "on_limit": "beg"},
    ],
)
def test_invalid_limits_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StartIn.model_validate(START | wrong)


def test_only_a_run_that_is_started_has_limits() -> None:
    limits = {"limits": {"steps": 1}}
    for schema, mode in (
        (InputsIn, "steer"),
        (InputsIn, "resume_open_run"),
        (ThreadMessagesIn, "resume_open_run"),
    ):
        with pytest.raises(ValidationError, match=f"mode `{mode}` starts none"):
            schema.model_validate(TEXT | limits | {"mode": mode})
    accepted = ThreadMessagesIn.model_validate(TEXT | limits | {"mode": "steer"})
    assert accepted.wanted_limits() == {"limits": {"steps": 1}, "on_limit": "stop"}


def test_limits_change_the_fingerprint_of_a_request_and_their_absence_does_not() -> None:
    plain, empty = StartIn.model_validate(START), StartIn.model_validate(START | {"limits": {}})
    one, other = (StartIn.model_validate(START | {"limits": {"steps": n}}) for n in (1, 2))
    assert plain.fingerprint() == empty.fingerprint()
    assert len({plain.fingerprint(), one.fingerprint(), other.fingerprint()}) == 3
