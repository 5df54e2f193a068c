"""How long a run waits for a rate limit, and when it has waited long enough."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.ids import MessageId
from app.domain.runs.rate_limits import (
    AskedBy,
    PartialAnswer,
    RateLimitPolicy,
    RateLimitWaits,
    ResumeAt,
    TimedPause,
    WaitExceeded,
    jitter,
    partial_answer_of,
    partial_from_json,
    partial_to_json,
    plan_wait,
    waits_from_json,
    waits_of,
    waits_to_json,
)
from app.domain.runs.runs import Waiting, WaitingReason
from app.domain.threads.messages import TruncationReason
from app.domain.tickets.tickets import waiting_to_json
from app.runtime.plugins import SuspendRun

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = RateLimitPolicy(suspend_after=20, max_wait=100)


def pause(seconds: float, asked_by: AskedBy = AskedBy.PROVIDER) -> TimedPause:
    return TimedPause(seconds=seconds, asked_by=asked_by, source="gpt", detail="slow down")


def test_a_run_waits_as_long_as_it_is_asked_to_and_a_little_longer() -> None:
    earliest = plan_wait(pause(60), RateLimitWaits(), POLICY, at=NOON, chance=0)
    latest = plan_wait(pause(60), RateLimitWaits(), POLICY, at=NOON, chance=1)
    assert isinstance(earliest, ResumeAt)
    assert isinstance(latest, ResumeAt)
    assert earliest.until == NOON + timedelta(seconds=60)
    assert latest.until == NOON + timedelta(seconds=66)


@pytest.mark.parametrize("seconds, most", [(0.5, 1), (10, 1), (60, 6), (300, 30), (3600, 30)])
def test_the_jitter_grows_with_the_pause_within_bounds(seconds: float, most: float) -> None:
    assert jitter(seconds, 0) == 0
    assert jitter(seconds, 1) == most


def test_waits_add_up_to_what_a_run_may_wait() -> None:
    first = plan_wait(pause(60), RateLimitWaits(), POLICY, at=NOON, chance=0.5)
    assert isinstance(first, ResumeAt)
    assert (first.waits.count, first.waits.seconds) == (1, 63)
    last = plan_wait(pause(37), first.waits, POLICY, at=NOON, chance=0)
    assert isinstance(last, ResumeAt)
    assert (last.waits.count, last.waits.seconds) == (2, 100)
    none_left = plan_wait(pause(0.1), last.waits, POLICY, at=NOON, chance=0)
    assert isinstance(none_left, WaitExceeded)
    assert "has waited 100 of the 100 s that HOLDFAST_RATE_LIMIT_MAX_WAIT" in none_left.detail


@pytest.mark.parametrize("seconds", [100.1, 1e12, float("inf"), float("nan")])
def test_a_pause_that_is_too_long_is_refused_at_once(seconds: float) -> None:
    refused = plan_wait(pause(seconds), RateLimitWaits(), POLICY, at=NOON, chance=0)
    assert isinstance(refused, WaitExceeded)
    assert "slow down" in refused.detail


@pytest.mark.parametrize("asked_by", list(AskedBy))
def test_each_pause_names_its_source_and_why(asked_by: AskedBy) -> None:
    sentence = pause(60, asked_by).sentence
    assert "gpt" in sentence
    assert "slow down" in sentence


def test_waits_and_partial_answers_are_read_as_they_were_written() -> None:
    waits = RateLimitWaits(count=2, seconds=61.5, newest="slow down")
    partial = PartialAnswer("so far", "connection reset", ("send",))
    assert waits_from_json(waits_to_json(waits)) == waits
    assert partial_from_json(partial_to_json(partial)) == partial
    stored = {
        "extensions": {
            "__runtime.rate_limit": waits_to_json(waits),
            "__runtime.partial_answer": partial_to_json(partial),
        }
    }
    assert (waits_of(stored), partial_answer_of(stored)) == (waits, partial)


@pytest.mark.parametrize("state", [None, {}, {"extensions": {"__runtime.partial_answer": None}}])
def test_a_run_that_never_waited_has_no_waits(state: dict[str, object] | None) -> None:
    assert waits_of(state) == RateLimitWaits()
    assert partial_answer_of(state) is None


def test_an_interrupted_answer_without_text_leaves_no_message() -> None:
    whole = PartialAnswer("so far", "", ()).as_message(MessageId("m"), TruncationReason.CANCELLED)
    assert whole is not None
    assert (whole.text, whole.cut_short) == ("so far", TruncationReason.CANCELLED)
    assert PartialAnswer(" \n", "", ()).as_message(MessageId("m"), TruncationReason.FAILED) is None


def test_a_waiting_run_shows_until_when_only_if_it_needs_nothing_but_time() -> None:
    timed = Waiting(WaitingReason.RATE_LIMIT, "rate_limit", NOON)
    shown = waiting_to_json(
        timed.reason, timed.message, [], "since", until=timed.until, detail="why"
    )
    assert (shown["until"], shown["detail"]) == ("2026-01-01T12:00:00.000Z", "why")
    assert "until" not in waiting_to_json(WaitingReason.TOOL_PERMISSION, "suspended", [], "since")


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_a_plugin_names_a_time_that_comes(seconds: float) -> None:
    with pytest.raises(ValueError, match="can't be suspended"):
        SuspendRun(seconds, "quota")
