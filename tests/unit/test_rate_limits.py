"""How long a run waits for a rate limit, and when its waits reach their total limit."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.ids import MessageId
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import RetryPolicy
from app.domain.runs.rate_limits import (
    PartialAnswer,
    PauseOrigin,
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
from app.domain.runs.runs import Done, Waiting, WaitingReason
from app.domain.runs.terminations import Failed
from app.domain.threads.messages import TruncationReason
from app.domain.tickets.ticket_json import waiting_to_json
from app.llm.scripted.model import Fail, ScriptedTurn, turn
from app.runtime.plugins import HookView, Phase, Request, SuspendRun
from tests.support.hooks import Hooks
from tests.support.plain_runs import PlainRun

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = RateLimitPolicy(suspend_after=20, max_wait=100)


def pause(seconds: float, origin: PauseOrigin = PauseOrigin.PROVIDER) -> TimedPause:
    return TimedPause(seconds=seconds, origin=origin, source="gpt", detail="slow down")


def test_a_run_waits_the_requested_time_plus_jitter() -> None:
    earliest = plan_wait(pause(60), RateLimitWaits(), POLICY, at=NOON, chance=0)
    latest = plan_wait(pause(60), RateLimitWaits(), POLICY, at=NOON, chance=1)
    assert isinstance(earliest, ResumeAt)
    assert isinstance(latest, ResumeAt)
    assert earliest.until == NOON + timedelta(seconds=60)
    assert latest.until == NOON + timedelta(seconds=66)


def test_waits_are_stored_in_milliseconds() -> None:
    plan = plan_wait(pause(20.12345), RateLimitWaits(), POLICY, at=NOON, chance=0)
    assert isinstance(plan, ResumeAt)
    assert plan.waits.seconds == 20.123


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


@pytest.mark.parametrize(
    "origin, count", [(PauseOrigin.BREAKER, 3), (PauseOrigin.PROVIDER, 2), (PauseOrigin.PLUGIN, 2)]
)
def test_only_waits_for_a_circuit_breaker_count_as_such(origin: PauseOrigin, count: int) -> None:
    plan = plan_wait(pause(1, origin), RateLimitWaits(breaker_waits=2), POLICY, at=NOON, chance=0)
    assert isinstance(plan, ResumeAt)
    assert plan.waits.breaker_waits == count


@pytest.mark.parametrize("seconds", [100.1, 1e12, float("inf"), float("nan")])
def test_a_pause_that_is_too_long_is_refused_at_once(seconds: float) -> None:
    refused = plan_wait(pause(seconds), RateLimitWaits(), POLICY, at=NOON, chance=0)
    assert isinstance(refused, WaitExceeded)
    assert "slow down" in refused.detail


@pytest.mark.parametrize("origin", list(PauseOrigin))
def test_each_pause_names_its_source_and_why(origin: PauseOrigin) -> None:
    sentence = pause(60, origin).sentence
    assert "gpt" in sentence
    assert "slow down" in sentence


def test_waits_and_partial_answers_survive_a_round_trip() -> None:
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


def test_a_waiting_run_shows_a_time_only_if_it_waits_for_time_alone() -> None:
    timed = Waiting(WaitingReason.RATE_LIMIT, "rate_limit", NOON)
    shown = waiting_to_json(timed.reason, [], "since", until=timed.until, detail="why")
    assert (shown["until"], shown["detail"]) == ("2026-01-01T12:00:00.000Z", "why")
    assert "until" not in waiting_to_json(WaitingReason.TOOL_PERMISSION, [], "since")


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_a_plugin_must_name_a_future_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="can't be suspended"):
        SuspendRun(seconds, "quota")


# --- in a run -------------------------------------------------------------------------------------


def pausing(*seconds: float) -> Hooks:
    """A plugin that asks for these pauses, each before the first inference that is left."""
    left = list(seconds)

    def answer(view: HookView) -> Sequence[Request]:
        return (SuspendRun(left.pop(0), "quota"),) if left else ()

    return Hooks({Phase.BEFORE_INFERENCE: answer}, name="quota")


@pytest.mark.anyio
async def test_a_run_suspends_outside_of_its_step_and_begins_the_step_again() -> None:
    run = PlainRun(plugins=[pausing(30).plugin])
    await run.start()
    state = run.rows.record.state
    assert isinstance(state, Waiting)
    assert (state.reason, state.message) == (WaitingReason.RATE_LIMIT, "rate_limit")
    assert state.until is not None
    begun, ended, finish = (
        run.events("step_start"),
        run.events("step_end"),
        run.events("run_finish"),
    )
    assert [each["step"] for each in begun] == [each["step"] for each in ended] == [1]
    assert finish[-1].get("step") is None
    assert run.events("state_snapshot")[-1].get("step") is None
    assert waits_of(run.rows.record.run_state).count == 1
    assert not run.requests


@pytest.mark.anyio
async def test_a_run_that_would_wait_too_long_fails() -> None:
    run = PlainRun(plugins=[pausing(3601).plugin])
    await run.start()
    state = run.rows.record.state
    assert isinstance(state, Done)
    assert isinstance(state.termination, Failed)
    assert state.termination.code == "rate_limit_wait_exceeded"
    assert "3601 s" in state.termination.detail


LIMITED = Fail(failed(FailureKind.RATE_LIMITED, "slow down", retry_after=60))
CUT = Fail(failed(FailureKind.STREAM_INTERRUPTED, "cut"))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("turns", "answer", "requests"),
    [
        ([turn(LIMITED)], "All of it.", 2),
        ([turn("Half of ", CUT), turn(LIMITED)], "Half of All of it.", 3),
    ],
)
async def test_the_text_before_a_rate_limit_is_kept(
    turns: list[ScriptedTurn], answer: str, requests: int
) -> None:
    run = PlainRun(*turns, turn("All of it."), retry=RetryPolicy(backoff_base=0))
    await run.start()
    waiting = run.rows.record.state
    assert isinstance(waiting, Waiting)
    await run.execute()
    done = run.rows.record.state
    assert isinstance(done, Done)
    assert done.final_output == answer
    assert len(run.requests) == requests
