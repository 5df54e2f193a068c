"""A circuit breaker opens after failures in a row, and closes after one probe request succeeds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import InferenceOptions
from app.domain.structs import replace
from app.llm import breaker
from app.llm.breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN, HEALTHY, Closed, Open, Probing
from app.llm.scripted.model import Fail, Part, ScriptedModel, ScriptInOrder, in_order, turn
from app.llm.with_breaker import MAX_CIRCUITS, Breakers, Circuit, ModelWithBreaker
from app.runtime.ports.models import ModelChunk, ModelRequest
from tests.support.transcripts import asking, collect

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BROKEN = Fail(failed(FailureKind.PROVIDER, "it broke"))


class SilentModel:
    """Takes each request and never answers."""

    name = "m"

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        await asyncio.Event().wait()
        raise AssertionError(request)
        yield  # type: ignore[unreachable]  # makes it a generator


class SetClock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


def test_the_breaker_opens_after_the_configured_number_of_failures_in_a_row() -> None:
    state: breaker.State = HEALTHY
    for count in range(1, FAILURES_TO_OPEN):
        state = breaker.record_failure(state, NOW)
        assert state == Closed(count)
    assert breaker.record_failure(state, NOW) == Open(NOW + COOL_DOWN_SECONDS)


def test_a_complete_answer_resets_the_failure_count() -> None:
    assert breaker.record_success(Closed(FAILURES_TO_OPEN - 1)) == HEALTHY


def test_a_half_open_breaker_lets_one_probe_pass() -> None:
    opened = Open(NOW)
    assert breaker.request_allowed(opened, NOW - timedelta(seconds=1)) is None
    assert breaker.request_allowed(opened, NOW) == Probing()
    assert breaker.request_allowed(Probing(), NOW) is None


def test_an_answer_that_begins_closes_the_breaker_on_probation() -> None:
    probation = breaker.answer_started(Probing())
    assert breaker.request_allowed(probation, NOW) == probation
    assert breaker.record_failure(probation, NOW) == Open(NOW + COOL_DOWN_SECONDS)
    assert breaker.record_success(probation) == HEALTHY


def test_a_failed_probe_reopens_the_breaker_and_an_abandoned_probe_frees_it() -> None:
    assert breaker.record_failure(Probing(), NOW) == Open(NOW + COOL_DOWN_SECONDS)
    assert breaker.probe_abandoned(Probing(), NOW) == Open(NOW)


def test_requests_from_before_it_opened_dont_change_the_breaker() -> None:
    opened = Open(NOW + COOL_DOWN_SECONDS)
    assert breaker.record_failure(opened, NOW + timedelta(seconds=9)) == opened
    assert breaker.record_success(opened) == opened
    assert breaker.answer_started(opened) == opened
    assert breaker.probe_abandoned(opened, NOW) == opened


def test_each_state_names_when_the_next_request_may_pass() -> None:
    opened = Open(NOW + COOL_DOWN_SECONDS)
    assert breaker.time_until_retry(opened, NOW + timedelta(seconds=9)) == timedelta(seconds=21)
    assert breaker.time_until_retry(opened, NOW + 2 * COOL_DOWN_SECONDS) == timedelta()
    assert breaker.time_until_retry(Closed(4), NOW) == timedelta()
    assert breaker.time_until_retry(Probing(), NOW) == COOL_DOWN_SECONDS


async def test_a_refusal_of_the_breaker_names_how_long_it_stays_open() -> None:
    clock = SetClock()
    model, _ = _guarded([BROKEN] * FAILURES_TO_OPEN, clock)
    for _ in range(FAILURES_TO_OPEN):
        await _failure(model)
    clock.time += timedelta(seconds=9)
    with pytest.raises(InferenceFailed) as caught:
        await collect(model, asking("hello"))
    assert caught.value.retry_after == 21


async def test_an_open_breaker_sends_no_request_until_its_pause_is_over() -> None:
    clock = SetClock()
    model, script = _guarded([*[BROKEN] * FAILURES_TO_OPEN, "there"], clock)
    for _ in range(FAILURES_TO_OPEN):
        assert await _failure(model) == "provider"
    assert await _failure(model) == "model_unavailable"
    assert len(script.requests) == FAILURES_TO_OPEN
    clock.time += COOL_DOWN_SECONDS
    assert (await collect(model, asking("hello"))).text == "there"


async def test_a_failed_probe_opens_the_breaker_for_another_pause() -> None:
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


@pytest.mark.parametrize("idle_timeout, refused", [(0.01, True), (60.0, False)])
async def test_the_time_out_of_a_silent_model_is_a_failure_and_a_cancellation_is_not(
    idle_timeout: float, refused: bool
) -> None:
    model = ModelWithBreaker(SilentModel(), "here", Breakers(SetClock()))
    request = replace(asking("hello"), idle_timeout=idle_timeout)
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), model.stream(request):
                pass
    with pytest.raises(InferenceFailed if refused else TimeoutError):
        async with asyncio.timeout(0.05), model.stream(request):
            pass


async def test_each_upstream_model_has_one_breaker_for_all_its_names() -> None:
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


def test_the_number_of_breakers_is_bounded() -> None:
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
        await collect(model, request)
    return caught.value.kind
