"""A stream is cut when one send waits too long, however many sends there are."""

import asyncio

import pytest

from app.http.sse import StalledSends

pytestmark = pytest.mark.anyio


async def test_a_send_that_waits_too_long_is_reported() -> None:
    stalled = asyncio.Event()
    with StalledSends(0.01, stalled.set) as sends:
        sends.begin()
        async with asyncio.timeout(5):
            await stalled.wait()


async def test_sends_that_end_are_not_reported_though_they_are_rare() -> None:
    stalled, later = asyncio.Event(), asyncio.Event()
    with StalledSends(0.01, stalled.set) as sends:
        sends.begin()
        sends.end()
        asyncio.get_running_loop().call_later(0.05, later.set)
        await later.wait()
    assert not stalled.is_set()


async def test_nothing_is_reported_after_the_block() -> None:
    stalled, later = asyncio.Event(), asyncio.Event()
    with StalledSends(0.01, stalled.set) as sends:
        sends.begin()
    asyncio.get_running_loop().call_later(0.05, later.set)
    await later.wait()
    assert not stalled.is_set()
