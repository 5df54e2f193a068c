"""The idle time-out of an inference counts only the time in which the model sends nothing."""

import asyncio

import pytest

from app.clock import sleep
from app.domain.errors import InferenceFailed
from app.runtime.inference.idle_timeout import IdleTimeout

pytestmark = pytest.mark.anyio

LIMIT = 0.05


async def test_a_model_that_sends_nothing_for_too_long_is_a_time_out() -> None:
    with pytest.raises(InferenceFailed, match=r"said nothing for 0\.05 s") as caught:
        async with asyncio.timeout(5), IdleTimeout(LIMIT):
            await asyncio.Event().wait()
    assert (caught.value.kind, caught.value.retryable) == ("timeout", True)


async def test_a_model_that_sends_in_time_is_not_interrupted() -> None:
    async with IdleTimeout(5 * LIMIT) as idle_timeout:
        for _ in range(10):
            await sleep(LIMIT)
            idle_timeout.received()


async def test_time_in_the_consumer_does_not_count_as_idle() -> None:
    async with IdleTimeout(LIMIT) as idle_timeout:
        idle_timeout.pause()
        await sleep(3 * LIMIT)
        idle_timeout.received()


async def test_a_time_out_of_an_outer_scope_propagates() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(LIMIT), IdleTimeout(10):
            await asyncio.Event().wait()


async def test_another_error_propagates_and_leaves_no_timer() -> None:
    with pytest.raises(LookupError):
        async with IdleTimeout(LIMIT):
            raise LookupError
    await sleep(2 * LIMIT)
