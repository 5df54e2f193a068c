"""Reads of many answers are paced, and those of few are not."""

import asyncio

import pytest

from app.clock import yield_to_loop
from app.llm.http.read_pacing import MAX_INTERVAL_SECONDS, SLOT_SECONDS, UNPACED, ReadPacing

pytestmark = pytest.mark.anyio


def pacing_of(answers: int) -> ReadPacing:
    pacing = ReadPacing()
    for _ in range(answers):
        pacing.begin_wait()
    return pacing


def test_few_answers_are_not_paced() -> None:
    assert pacing_of(UNPACED).interval == 0


def test_the_interval_grows_with_the_answers_up_to_its_maximum() -> None:
    assert 0 < pacing_of(100).interval < pacing_of(200).interval
    assert pacing_of(500).interval == pacing_of(5_000).interval == MAX_INTERVAL_SECONDS


def test_answers_that_have_ended_do_not_count() -> None:
    pacing = pacing_of(500)
    for _ in range(500 - UNPACED):
        pacing.end_wait()
    assert pacing.interval == 0


async def test_a_pause_lasts_until_its_time_and_a_past_time_needs_none() -> None:
    pacing, loop = ReadPacing(), asyncio.get_running_loop()
    due = loop.time() + 2 * SLOT_SECONDS
    async with asyncio.timeout(5):
        await asyncio.gather(*(pacing.pause_until(due) for _ in range(10)))
        assert loop.time() >= due
        await pacing.pause_until(due)


async def test_a_cancelled_pause_leaves_the_others_of_its_slot_waiting() -> None:
    pacing, loop = ReadPacing(), asyncio.get_running_loop()
    due = loop.time() + 4 * SLOT_SECONDS
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        first, second = [tasks.create_task(pacing.pause_until(due)) for _ in range(2)]
        await yield_to_loop()
        first.cancel()
    assert first.cancelled()
    assert not second.cancelled()
    assert loop.time() >= due
