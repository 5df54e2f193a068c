"""Threads for plain functions: their number is bounded, and abandoned ones block no caller."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from app.tools.functions.thread_pool import ToolThreads

pytestmark = pytest.mark.anyio

NOTE: ContextVar[str] = ContextVar("NOTE")


async def test_a_call_runs_in_another_thread_with_the_callers_context() -> None:
    NOTE.set("from the caller")
    seen = await ToolThreads(limit=1).run(lambda: (threading.get_ident(), NOTE.get()))
    assert seen[0] != threading.get_ident()
    assert seen[1] == "from the caller"


async def test_an_exception_of_a_call_reaches_its_caller() -> None:
    def fails() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await ToolThreads(limit=1).run(fails)


async def test_a_stop_iteration_does_not_leave_its_caller_waiting() -> None:
    def runs_dry() -> int:
        return next(iter([]))

    with pytest.raises(RuntimeError, match="StopIteration"):
        async with asyncio.timeout(5):
            await ToolThreads(limit=1).run(runs_dry)


async def test_no_more_calls_run_at_once_than_there_are_threads() -> None:
    threads = ToolThreads(limit=2)
    running, most = 0, 0
    count, both = threading.Lock(), threading.Barrier(2)

    def call() -> None:
        nonlocal running, most
        with count:
            running += 1
            most = max(most, running)
        both.wait(5)
        with count:
            running -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(threads.run(call))
    assert most == 2


async def test_an_idle_thread_is_used_again() -> None:
    threads = ToolThreads(limit=8)
    seen = {await threads.run(threading.current_thread) for _ in range(3)}
    assert len(seen) <= 2
    assert all(thread.daemon for thread in seen)


async def test_a_cancelled_call_never_starts() -> None:
    threads = ToolThreads(limit=1)
    release, ran = threading.Event(), []

    def blocks() -> None:
        assert release.wait(5)

    def late() -> None:
        ran.append("late")

    async with asyncio.TaskGroup() as group:
        first = group.create_task(threads.run(blocks))
        queued = group.create_task(threads.run(late))
        await _turns_of_the_loop()
        queued.cancel()
        await _turns_of_the_loop()
        release.set()
    assert first.done()
    await threads.run(lambda: ran.append("after"))
    assert ran == ["after"]


async def test_the_outcome_of_an_abandoned_call_is_dropped() -> None:
    threads = ToolThreads(limit=1)
    started, release = threading.Event(), threading.Event()

    def fails_late() -> None:
        started.set()
        assert release.wait(5)
        raise LookupError("never raised to a caller")

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(threads.run(fails_late))
        await _until(started.is_set)
        waiting.cancel()
    assert waiting.cancelled()
    release.set()
    assert await threads.run(lambda: "free again") == "free again"


async def _turns_of_the_loop() -> None:
    for _ in range(3):
        turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        await turn.wait()


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await _turns_of_the_loop()
