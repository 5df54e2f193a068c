"""Which model is retried after which pause, and when a failure is final."""

import pytest

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import InferenceOptions, RetryPolicy, ThinkingBudget
from app.domain.runs.rate_limits import PauseOrigin, RateLimitPolicy
from app.domain.threads.messages import Role
from app.llm.scripted.model import Fail, turn
from app.runtime.inference import infer
from app.runtime.inference.recovery import (
    CONNECTION_RESET,
    IDLE_STALL,
    RecoveryPlan,
    cause_of,
    continuation_request,
    idle_limit,
    pause_before_recovery,
    plan_for,
)
from app.runtime.inference.retries import Attempts, PauseNeeded
from app.runtime.ports.models import ModelRequest
from tests.support.logs import message
from tests.support.plain_runs import PlainRun

SUSPEND_AFTER = RateLimitPolicy().suspend_after

BROKEN = failed(FailureKind.PROVIDER, "it broke")
BUSY = failed(FailureKind.OVERLOADED, "come back later")
BREAKER_OPEN = failed(FailureKind.MODEL_UNAVAILABLE, "not asked for a while")
POLICY = RetryPolicy(max_retries=6)


def limited(retry_after: float) -> InferenceFailed:
    return failed(FailureKind.RATE_LIMITED, "slow down", retry_after=retry_after)


def open_breaker_for(seconds: float) -> InferenceFailed:
    return failed(FailureKind.MODEL_UNAVAILABLE, "shut", retry_after=seconds)


def test_pauses_double_up_to_a_cap() -> None:
    attempts = Attempts(["a"], POLICY)
    assert [attempts.pause_after(BROKEN) for _ in range(6)] == [0.5, 1, 2, 4, 8, 8]


def test_an_overloaded_provider_gets_more_time() -> None:
    attempts = Attempts(["a"], POLICY)
    assert [attempts.pause_after(BUSY) for _ in range(3)] == [2, 4, 8]


def test_the_longer_of_backoff_and_retry_after_counts() -> None:
    attempts = Attempts(["a"], POLICY)
    assert attempts.pause_after(limited(7)) == 7
    assert attempts.pause_after(limited(0.1)) == 1
    assert attempts.pause_after(limited(SUSPEND_AFTER)) == SUSPEND_AFTER


def test_a_long_pause_goes_to_the_next_model_and_then_needs_the_shortest_of_all_pauses() -> None:
    attempts = Attempts(["a", "b"], POLICY)
    assert (attempts.pause_after(limited(60)), attempts.model) == (0, "b")
    with pytest.raises(PauseNeeded) as caught:
        attempts.pause_after(limited(90))
    pause = caught.value.pause
    assert (pause.seconds, pause.source, pause.origin) == (60, "a", PauseOrigin.PROVIDER)
    assert pause.detail == "slow down"


def test_a_long_pause_of_one_model_outweighs_a_failure_of_another() -> None:
    attempts = Attempts(["a", "b"], RetryPolicy(max_retries=0))
    attempts.pause_after(limited(60))
    with pytest.raises(PauseNeeded) as caught:
        attempts.pause_after(BROKEN)
    assert caught.value.pause.source == "a"


def test_a_permanent_failure_is_raised_though_another_model_asks_for_a_pause() -> None:
    attempts = Attempts(["a", "b"], POLICY)
    attempts.pause_after(limited(60))
    with pytest.raises(InferenceFailed) as caught:
        attempts.pause_after(failed(FailureKind.INVALID_REQUEST, "no"))
    assert caught.value.kind == "invalid_request"


def test_an_open_breaker_is_a_pause_like_any_other() -> None:
    long, short = open_breaker_for(30), open_breaker_for(5)
    with pytest.raises(PauseNeeded) as caught:
        Attempts(["a"], POLICY).pause_after(long)
    assert (caught.value.pause.seconds, caught.value.pause.origin) == (30, PauseOrigin.BREAKER)
    attempts = Attempts(["a", "b"], RetryPolicy(max_retries=1))
    assert (attempts.pause_after(short), attempts.model) == (0, "b")
    assert (attempts.pause_after(short), attempts.model) == (5, "b")
    with pytest.raises(InferenceFailed, match="all_models_unavailable"):
        attempts.pause_after(short)


def test_short_pauses_of_a_breaker_count_as_one_retry_each() -> None:
    attempts = Attempts(["a"], RetryPolicy(max_retries=2))
    assert [attempts.pause_after(open_breaker_for(5)) for _ in range(2)] == [5, 5]
    with pytest.raises(InferenceFailed, match="all_models_unavailable"):
        attempts.pause_after(open_breaker_for(5))


def test_short_pauses_count_as_retries() -> None:
    attempts = Attempts(["a"], RetryPolicy(max_retries=1))
    assert attempts.pause_after(limited(7)) == 7
    with pytest.raises(InferenceFailed) as caught:
        attempts.pause_after(limited(7))
    assert caught.value.kind == "rate_limited"


def test_the_longest_pause_of_a_worker_is_a_setting() -> None:
    with pytest.raises(PauseNeeded):
        Attempts(["a"], POLICY, suspend_after=0.5).pause_after(limited(0.6))


def test_each_model_has_the_same_number_of_retries() -> None:
    attempts = Attempts(["a", "b"], RetryPolicy(max_retries=1))
    asked = [attempts.model]
    for _ in range(3):
        attempts.pause_after(BROKEN)
        asked.append(attempts.model)
    assert asked == ["a", "a", "b", "b"]
    with pytest.raises(InferenceFailed) as caught:
        attempts.pause_after(BROKEN)
    assert caught.value is BROKEN


@pytest.mark.parametrize(
    "kind",
    [
        FailureKind.CONTEXT_OVERFLOW,
        FailureKind.INVALID_REQUEST,
        FailureKind.UNAUTHORIZED,
        FailureKind.MODEL_NOT_FOUND,
        FailureKind.CONTENT_FILTERED,
        FailureKind.ALL_MODELS_UNAVAILABLE,
    ],
)
def test_a_permanent_failure_stops_at_once_also_at_a_fallback(kind: FailureKind) -> None:
    assert not kind.retryable
    assert not kind.counted
    attempts = Attempts(["a", "b", "c"], RetryPolicy(max_retries=0))
    attempts.pause_after(BROKEN)
    with pytest.raises(InferenceFailed) as caught:
        attempts.pause_after(failed(kind, "no"))
    assert caught.value.kind == kind


def test_a_model_with_an_open_breaker_is_skipped_without_a_pause() -> None:
    attempts = Attempts(["a", "b"], POLICY)
    assert (attempts.pause_after(BREAKER_OPEN), attempts.model) == (0, "b")
    with pytest.raises(InferenceFailed) as caught:
        attempts.pause_after(BREAKER_OPEN)
    assert caught.value.kind == "all_models_unavailable"
    assert "a, b" in caught.value.detail


def test_the_failure_of_a_provider_is_raised_when_the_other_breaker_is_open() -> None:
    attempts = Attempts(["a", "b"], RetryPolicy(max_retries=0))
    attempts.pause_after(BUSY)
    with pytest.raises(InferenceFailed) as caught:
        attempts.pause_after(BREAKER_OPEN)
    assert caught.value is BUSY


def test_an_answer_that_began_gives_its_model_all_retries_back() -> None:
    attempts = Attempts(["a", "b"], RetryPolicy(max_retries=1))
    for _ in range(5):
        attempts.pause_after(BROKEN)
        attempts.answer_started()
    assert attempts.model == "a"


def test_a_recovery_plan_keeps_complete_calls_and_text() -> None:
    assert plan_for(has_complete_calls=True, text="") is RecoveryPlan.RUN_CALLS
    assert plan_for(has_complete_calls=False, text="so far") is RecoveryPlan.CONTINUE
    assert plan_for(has_complete_calls=False, text=" \n") is RecoveryPlan.START_OVER


def test_causes_of_retries_have_names() -> None:
    assert cause_of(failed(FailureKind.TIMEOUT, "")) == IDLE_STALL
    assert cause_of(failed(FailureKind.STREAM_INTERRUPTED, "")) == CONNECTION_RESET
    assert cause_of(BUSY) == "provider overloaded mid-stream"


def test_pauses_of_recovery_double_except_for_idle_stalls() -> None:
    policy = RetryPolicy()
    assert pause_before_recovery(IDLE_STALL, 3, policy) == 0.2
    made = [pause_before_recovery(CONNECTION_RESET, count, policy) for count in range(6)]
    assert made == [0.5, 1, 2, 4, 8, 8]


@pytest.mark.parametrize(
    "model, options, limit",
    [
        ("gpt-5.4-mini", InferenceOptions(), 60),
        ("foo1-large", InferenceOptions(), 60),
        ("o3-mini", InferenceOptions(), 120),
        ("openai/o4", InferenceOptions(), 120),
        ("kimi-thinking", InferenceOptions(), 120),
        ("x", InferenceOptions(reasoning_effort="high"), 120),
        ("x", InferenceOptions(reasoning_effort=ThinkingBudget(9)), 120),
        ("x", InferenceOptions(reasoning_effort="none"), 60),
    ],
)
def test_reasoning_models_have_a_longer_idle_time_out(
    model: str, options: InferenceOptions, limit: float
) -> None:
    assert idle_limit(RetryPolicy(), model, options) == limit


@pytest.mark.parametrize(
    "text, roles", [("Once upon", [Role.ASSISTANT, Role.USER]), (" ", [Role.USER])]
)
def test_a_continuation_shows_the_model_its_text_before_the_prompt(
    text: str, roles: list[Role]
) -> None:
    first = message("u", Role.USER, "Tell me.")
    request = ModelRequest(system_prompt="Be kind.", messages=[first])
    rest = continuation_request(request, text, "idle stall", ["pay"])
    assert rest.messages[0] is first
    assert [each.role for each in rest.messages[1:]] == roles
    assert "Your call to pay was not made." in rest.messages[-1].text
    assert ("Go on exactly where it stops" in rest.messages[-1].text) is (len(roles) == 2)


@pytest.mark.parametrize("base, waited", [(0.5, [0.5, 1.0]), (0.0, [])])
@pytest.mark.anyio
async def test_a_model_is_asked_again_after_each_pause(
    base: float, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(infer, "sleep", sleep)
    policy = RetryPolicy(max_retries=2, backoff_base=base)
    run = PlainRun(turn(Fail(BROKEN)), turn(Fail(BROKEN)), turn("Done."), retry=policy)
    await run.start()
    assert len(run.requests) == 3
    assert pauses == waited
