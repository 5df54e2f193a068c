"""A timer that many short waits share."""

import asyncio

import pytest

from app.llm.http.moving_timer import MovingTimer

pytestmark = pytest.mark.anyio


async def test_a_wait_that_is_too_long_is_reported_once() -> None:
    reports: list[float] = []
    is_late = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_late() -> None:
        reports.append(loop.time())
        is_late.set()

    timer = MovingTimer(on_late)
    began = loop.time()
    for _ in range(3):
        timer.wait_for(0.05)
        timer.rest()
    timer.wait_for(0.05)
    await asyncio.wait_for(is_late.wait(), 10)
    assert len(reports) == 1
    assert reports[0] >= began + 0.05


async def test_a_shorter_wait_is_not_held_up_by_a_longer_one_before_it() -> None:
    is_late = asyncio.Event()
    timer = MovingTimer(is_late.set)
    timer.wait_for(3_600)
    timer.rest()
    timer.wait_for(0.01)
    await asyncio.wait_for(is_late.wait(), 10)


async def test_a_wait_that_ended_is_not_reported() -> None:
    reports: list[str] = []
    first, second = MovingTimer(lambda: reports.append("ended")), asyncio.Event()
    first.wait_for(0.01)
    first.rest()
    MovingTimer(second.set).wait_for(0.03)
    await asyncio.wait_for(second.wait(), 10)
    assert reports == []
