"""Silence is broken off when it lasts, and only when it is the model's."""

import asyncio

import pytest

from app.clock import sleep
from app.domain.errors import InferenceFailed
from app.runtime.inference.idle_timeout import IdleTimeout

pytestmark = pytest.mark.anyio

LIMIT = 0.05


async def test_silence_that_lasts_is_a_time_out() -> None:
    with pytest.raises(InferenceFailed, match=r"said nothing for 0\.05 s") as caught:
        async with asyncio.timeout(5), IdleTimeout(LIMIT):
            await asyncio.Event().wait()
    assert (caught.value.kind, caught.value.retryable) == ("timeout", True)


async def test_whoever_is_heard_in_time_may_go_on() -> None:
    async with IdleTimeout(5 * LIMIT) as silence:
        for _ in range(10):
            await sleep(LIMIT)
            silence.received()


async def test_a_listener_that_takes_its_time_is_not_the_models_silence() -> None:
    async with IdleTimeout(LIMIT) as silence:
        silence.pause()
        await sleep(3 * LIMIT)
        silence.received()


async def test_a_time_out_from_around_it_passes() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(LIMIT), IdleTimeout(10):
            await asyncio.Event().wait()


async def test_another_error_passes_and_leaves_no_timer() -> None:
    with pytest.raises(LookupError):
        async with IdleTimeout(LIMIT):
            raise LookupError
    await sleep(2 * LIMIT)
