"""A breaker opens after failures in a row, lets one request find out, and forgets nobody it shouldn't."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import InferenceOptions
from app.llm import breaker
from app.llm.breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN, HEALTHY, Closed, Open, Probing
from app.llm.scripted.model import Fail, Part, ScriptedModel, ScriptInOrder, in_order, turn
from app.llm.with_breaker import MAX_CIRCUITS, Breakers, Circuit, ModelWithBreaker
from app.runtime.ports import ModelRequest
from tests.support.transcripts import asking, hear

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BROKEN = Fail(failed(FailureKind.PROVIDER, "it broke"))


class SetClock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


def test_it_opens_with_the_last_of_the_failures_in_a_row() -> None:
    state: breaker.State = HEALTHY
    for count in range(1, FAILURES_TO_OPEN):
        state = breaker.record_failure(state, NOW)
        assert state == Closed(count)
    assert breaker.record_failure(state, NOW) == Open(NOW + COOL_DOWN_SECONDS)


def test_a_whole_answer_forgives_the_failures_before_it() -> None:
    assert breaker.record_success(Closed(FAILURES_TO_OPEN - 1)) == HEALTHY


def test_one_request_finds_out_and_no_other_passes() -> None:
    opened = Open(NOW)
    assert breaker.request_allowed(opened, NOW - timedelta(seconds=1)) is None
    assert breaker.request_allowed(opened, NOW) == Probing()
    assert breaker.request_allowed(Probing(), NOW) is None


def test_an_answer_that_begins_closes_it_on_probation() -> None:
    probation = breaker.answer_started(Probing())
    assert breaker.request_allowed(probation, NOW) == probation
    assert breaker.record_failure(probation, NOW) == Open(NOW + COOL_DOWN_SECONDS)
    assert breaker.record_success(probation) == HEALTHY


def test_a_probe_that_fails_opens_it_again_and_one_that_is_left_does_not_block_it() -> None:
    assert breaker.record_failure(Probing(), NOW) == Open(NOW + COOL_DOWN_SECONDS)
    assert breaker.probe_abandoned(Probing(), NOW) == Open(NOW)


def test_what_was_asked_before_it_opened_changes_nothing() -> None:
    opened = Open(NOW + COOL_DOWN_SECONDS)
    assert breaker.record_failure(opened, NOW + timedelta(seconds=9)) == opened
    assert breaker.record_success(opened) == opened
    assert breaker.answer_started(opened) == opened
    assert breaker.probe_abandoned(opened, NOW) == opened


def test_each_state_knows_when_another_request_may_pass() -> None:
    opened = Open(NOW + COOL_DOWN_SECONDS)
    assert breaker.asked_again_in(opened, NOW + timedelta(seconds=9)) == timedelta(seconds=21)
    assert breaker.asked_again_in(opened, NOW + 2 * COOL_DOWN_SECONDS) == timedelta()
    assert breaker.asked_again_in(Closed(4), NOW) == timedelta()
    assert breaker.asked_again_in(Probing(), NOW) == COOL_DOWN_SECONDS


async def test_a_refusal_of_the_breaker_says_how_long_it_stays_open() -> None:
    clock = SetClock()
    model, _ = _guarded([BROKEN] * FAILURES_TO_OPEN, clock)
    for _ in range(FAILURES_TO_OPEN):
        await _failure(model)
    clock.time += timedelta(seconds=9)
    with pytest.raises(InferenceFailed) as caught:
        await hear(model, asking("hello"))
    assert caught.value.retry_after == 21


async def test_an_open_breaker_asks_nobody_until_it_has_cooled_down() -> None:
    clock = SetClock()
    model, script = _guarded([*[BROKEN] * FAILURES_TO_OPEN, "there"], clock)
    for _ in range(FAILURES_TO_OPEN):
        assert await _failure(model) == "provider"
    assert await _failure(model) == "model_unavailable"
    assert len(script.requests) == FAILURES_TO_OPEN
    clock.time += COOL_DOWN_SECONDS
    assert (await hear(model, asking("hello"))).text == "there"


async def test_a_failed_probe_shuts_it_for_another_while() -> None:
    clock = SetClock()
    model, _ = _guarded([BROKEN] * 9, clock)
    for _ in range(FAILURES_TO_OPEN):
        await _failure(model)
    clock.time += COOL_DOWN_SECONDS
    assert await _failure(model) == "provider"
    assert await _failure(model) == "model_unavailable"


async def test_failures_of_the_request_are_not_counted() -> None:
    refused = Fail(failed(FailureKind.INVALID_REQUEST, "not like this"))
    model, script = _guarded([refused] * 9, SetClock())
    for _ in range(9):
        assert await _failure(model) == "invalid_request"
    assert len(script.requests) == 9


async def test_each_upstream_model_has_its_own_and_names_share_an_endpoint() -> None:
    breakers = Breakers(SetClock())
    script = in_order(*(turn(BROKEN) for _ in range(9)))
    one = ModelWithBreaker(ScriptedModel("m", script), "here", breakers)
    same = ModelWithBreaker(ScriptedModel("m", script), "here", breakers)
    elsewhere = ModelWithBreaker(ScriptedModel("m", script), "there", breakers)
    for _ in range(FAILURES_TO_OPEN):
        await _failure(one)
    assert await _failure(same) == "model_unavailable"
    assert await _failure(elsewhere) == "provider"
    assert await _failure(one, InferenceOptions(upstream_model="other")) == "provider"


def test_names_that_clients_think_up_do_not_fill_memory() -> None:
    breakers = Breakers(SetClock())
    for number in range(MAX_CIRCUITS + 50):
        breakers.record_failure(Circuit("here", f"m{number}"))
    assert len(breakers._states) == MAX_CIRCUITS
    breakers.record_success(Circuit("here", f"m{MAX_CIRCUITS}"))
    assert len(breakers._states) == MAX_CIRCUITS - 1


def _guarded(parts: list[Part | str], clock: SetClock) -> tuple[ModelWithBreaker, ScriptInOrder]:
    script = in_order(*(turn(part) for part in parts))
    return ModelWithBreaker(ScriptedModel("m", script), "here", Breakers(clock)), script


async def _failure(model: ModelWithBreaker, options: InferenceOptions | None = None) -> str:
    request = asking("hello")
    if options is not None:
        request = ModelRequest(system_prompt="", messages=request.messages, options=options)
    with pytest.raises(InferenceFailed) as caught:
        await hear(model, request)
    return caught.value.kind
