"""Interruption: a stop request interrupts slow work, and waits for work that can't be interrupted."""

import asyncio
from collections.abc import Callable

import pytest

from app.runtime.cancellation import Interrupted, Interruption, InterruptReason

pytestmark = pytest.mark.anyio


async def forever(interruption: Interruption, began: asyncio.Event) -> str:
    """Slow work of a run; returns how it was interrupted."""
    try:
        async with interruption.interruptible():
            began.set()
            await asyncio.Event().wait()
    except Interrupted as interrupted:
        return interrupted.reason.name
    return "not interrupted"


async def interrupted_by(cancel_request: str) -> str:
    interruption, began = Interruption(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(forever(interruption, began))
        await asyncio.wait_for(began.wait(), 5)
        if cancel_request == "cancel":
            interruption.cancel("enough")
        elif cancel_request == "abandon":
            interruption.abandon()
        else:
            interruption.hand_over(now=True)
    return task.result()


@pytest.mark.parametrize(
    "cancel_request, left",
    [("cancel", "CANCEL"), ("abandon", "ABANDON"), ("hand over", "HAND_OVER")],
)
async def test_an_urgent_stop_request_interrupts_slow_work(cancel_request: str, left: str) -> None:
    assert await interrupted_by(cancel_request) == left


async def test_an_interrupted_block_is_not_interrupted_again() -> None:
    interruption, began = Interruption(), asyncio.Event()
    leaving, left = asyncio.Event(), asyncio.Event()

    async def slow_to_leave() -> str:
        try:
            async with interruption.interruptible():
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    leaving.set()
                    await left.wait()
        except Interrupted as interrupted:
            return interrupted.reason.name
        return "not interrupted"

    async with asyncio.TaskGroup() as group:
        task = group.create_task(slow_to_leave())
        await asyncio.wait_for(began.wait(), 5)
        interruption.hand_over(now=True)
        await asyncio.wait_for(leaving.wait(), 5)
        interruption.hand_over(now=True)
        interruption.cancel("enough")
        left.set()
    assert task.result() == "CANCEL"


async def test_an_earlier_stop_request_interrupts_the_next_slow_work() -> None:
    interruption = Interruption()
    interruption.cancel("enough")
    assert await forever(interruption, asyncio.Event()) == "CANCEL"


async def test_a_hand_over_that_can_wait_interrupts_nothing() -> None:
    interruption = Interruption()
    async with interruption.interruptible():
        interruption.hand_over(now=False)
        await asyncio.wait_for(_a_moment(), 5)
    with pytest.raises(Interrupted) as left:
        interruption.check()
    assert left.value.reason is InterruptReason.HAND_OVER


async def test_a_safe_point_without_a_stop_request_is_passed() -> None:
    Interruption().check()


async def test_a_cancel_outweighs_a_hand_over() -> None:
    interruption = Interruption()
    interruption.hand_over(now=False)
    interruption.cancel("enough")
    interruption.hand_over(now=True)
    assert (interruption.requested, interruption.reason) == (InterruptReason.CANCEL, "enough")


async def test_a_lost_run_is_neither_cancelled_nor_handed_over() -> None:
    interruption = Interruption()
    interruption.abandon()
    interruption.cancel("too late")
    interruption.hand_over(now=True)
    assert (interruption.requested, interruption.reason) == (InterruptReason.ABANDON, None)


async def test_a_time_out_of_the_work_stays_a_time_out() -> None:
    interruption = Interruption()
    with pytest.raises(TimeoutError):
        async with interruption.interruptible():
            raise TimeoutError


async def test_a_time_out_before_a_hand_over_that_can_wait_stays_a_time_out() -> None:
    interruption = Interruption()
    interruption.hand_over(now=False)
    with pytest.raises(TimeoutError):
        async with interruption.interruptible():
            raise TimeoutError


async def test_the_tasks_own_cancellation_is_no_interruption() -> None:
    interruption, began = Interruption(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(forever(interruption, began))
        await asyncio.wait_for(began.wait(), 5)
        task.cancel()
    assert task.cancelled()


async def test_finished_work_cannot_be_interrupted() -> None:
    interruption = Interruption()
    async with interruption.interruptible():
        pass
    interruption.cancel()
    await _a_moment()


@pytest.mark.parametrize("free_first", [True, False])
async def test_free_work_is_handed_over_at_once(free_first: bool) -> None:
    interruption, began = Interruption(), asyncio.Event()
    cancel_requests: list[Callable[[], None]] = [
        lambda: interruption.hand_over_if_free(True),
        lambda: interruption.hand_over(now=False),
    ]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(forever(interruption, began))
        await asyncio.wait_for(began.wait(), 5)
        for cancel_request in cancel_requests if free_first else cancel_requests[::-1]:
            await _a_moment()
            assert not task.done()
            cancel_request()
    assert task.result() == "HAND_OVER"


async def test_work_that_is_not_free_any_more_is_waited_for() -> None:
    interruption, began = Interruption(), asyncio.Event()
    interruption.hand_over_if_free(True)
    interruption.hand_over_if_free(False)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(forever(interruption, began))
        await asyncio.wait_for(began.wait(), 5)
        interruption.hand_over(now=False)
        await _a_moment()
        assert not task.done()
        task.cancel()


async def _a_moment() -> None:
    """Let the event loop deliver pending cancellations."""
    arrived = asyncio.Event()
    asyncio.get_running_loop().call_soon(arrived.set)
    await arrived.wait()


@pytest.mark.parametrize("now, left", [(True, "OUT_OF_TIME"), (False, "not interrupted")])
async def test_an_urgent_time_limit_interrupts_slow_work(now: bool, left: str) -> None:
    interruption, began, may_end = Interruption(), asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        try:
            async with interruption.interruptible():
                began.set()
                await may_end.wait()
        except Interrupted as interrupted:
            return interrupted.reason.name
        return "not interrupted"

    async with asyncio.TaskGroup() as group:
        task = group.create_task(slow())
        await asyncio.wait_for(began.wait(), 5)
        interruption.out_of_time(now=now)
        if not now:
            may_end.set()
    assert task.result() == left
    assert interruption.requested is InterruptReason.OUT_OF_TIME


async def test_another_stop_request_outweighs_the_time_limit() -> None:
    for make in (Interruption.abandon, Interruption.cancel):
        interruption = Interruption()
        make(interruption)
        first = interruption.requested
        interruption.out_of_time(now=True)
        assert interruption.requested is first
    interruption = Interruption()
    interruption.hand_over(now=False)
    interruption.out_of_time(now=True)
    assert interruption.requested is InterruptReason.HAND_OVER
    async with interruption.interruptible():
        pass
