"""A run's waits for rate limits and its interrupted answer, as its state keeps them."""

import pytest

from app.domain.runs.rate_limits import PartialAnswer, PauseOrigin, RateLimitWaits, TimedPause
from app.domain.runs.terminations import Cancelled, Failed, NaturalEnd, Termination
from app.domain.threads.messages import TruncationReason
from app.runtime.inference.partial_answers import (
    keep_partial_answer,
    partial_answer,
    take_partial_answer,
)
from app.runtime.inference.rate_limit_waits import (
    current_waits,
    may_wait_again,
    record_answer,
    record_waits,
)
from tests.support.plain_runs import loaded_run

pytestmark = pytest.mark.anyio

WAITS = RateLimitWaits(count=3, seconds=9.0, breaker_waits=2, newest="slow down")
PARTIAL = PartialAnswer("Once upon", "the provider asks for a pause")


async def test_an_answer_ends_the_waits_for_the_breaker_and_keeps_the_others() -> None:
    run = await loaded_run()
    record_waits(run, WAITS)
    assert current_waits(run) == WAITS
    record_answer(run)
    assert current_waits(run) == RateLimitWaits(count=3, seconds=9.0, newest="slow down")


@pytest.mark.parametrize(
    "origin, breaker_waits, may_wait",
    [
        (PauseOrigin.BREAKER, 1, True),
        (PauseOrigin.BREAKER, 2, False),
        (PauseOrigin.PROVIDER, 2, True),
        (PauseOrigin.PLUGIN, 9, True),
    ],
)
async def test_only_waits_for_the_breaker_are_limited_in_number(
    origin: PauseOrigin, breaker_waits: int, may_wait: bool
) -> None:
    run = await loaded_run()
    assert run.agent.spec.retry.max_retries == 2
    record_waits(run, RateLimitWaits(breaker_waits=breaker_waits))
    pause = TimedPause(seconds=1, origin=origin, source="gpt", detail="slow down")
    assert may_wait_again(run, pause) is may_wait


async def test_an_interrupted_answer_is_kept_until_it_is_replaced() -> None:
    run = await loaded_run()
    assert partial_answer(run) is None
    keep_partial_answer(run, PARTIAL)
    assert partial_answer(run) == PARTIAL
    keep_partial_answer(run, None)
    assert partial_answer(run) is None


@pytest.mark.parametrize(
    "termination, reason",
    [
        (Cancelled("enough"), TruncationReason.CANCELLED),
        (Failed("code", "detail"), TruncationReason.FAILED),
        (NaturalEnd(), TruncationReason.STOPPED),
    ],
)
async def test_the_end_of_a_run_takes_the_text_of_its_interrupted_answer(
    termination: Termination, reason: TruncationReason
) -> None:
    run = await loaded_run()
    assert take_partial_answer(run, termination) == []
    keep_partial_answer(run, PARTIAL)
    [message] = take_partial_answer(run, termination)
    assert (message.text, message.cut_short) == ("Once upon", reason)
    assert partial_answer(run) is None


async def test_an_interrupted_answer_without_text_is_taken_without_a_message() -> None:
    run = await loaded_run()
    keep_partial_answer(run, PartialAnswer(" ", "the provider asks for a pause", ("pay",)))
    assert take_partial_answer(run, NaturalEnd()) == []
    assert partial_answer(run) is None
