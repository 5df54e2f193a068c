"""A tool waits while the event buffer is full, and stops waiting when its run is lost."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.domain.events.agent_events import AgentEvent
from app.domain.events.tool_call_events import ToolCallStreamDelta
from app.tools.functions.output_pacing import MAX_UNCHECKED_BYTES, ThreadEmitter, paced

pytestmark = pytest.mark.anyio


class Capacity:
    """The buffer has capacity while `free` is set."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.asked = asyncio.Event()

    async def wait(self) -> None:
        self.asked.set()
        await self.free.wait()


async def awaited(value: str) -> str:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, value)
    return await future


async def test_work_continues_after_an_await_only_with_capacity() -> None:
    capacity, done = Capacity(), list[str]()

    async def work() -> str:
        done.append(await awaited("first"))
        done.append(await awaited("second"))
        return "result"

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        working = tasks.create_task(paced(work(), capacity.wait))
        await capacity.asked.wait()
        assert done == []
        capacity.free.set()
    assert done == ["first", "second"]
    assert working.result() == "result"


async def test_an_error_of_an_await_can_be_handled_by_the_work() -> None:
    capacity = Capacity()
    capacity.free.set()

    async def work() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "too late"
        return "never"

    assert await asyncio.wait_for(paced(work(), capacity.wait), 5) == "too late"


async def test_an_error_of_the_work_propagates_to_the_caller() -> None:
    async def work() -> None:
        await awaited("first")
        raise LookupError("lost")

    capacity = Capacity()
    capacity.free.set()
    with pytest.raises(LookupError, match="lost"):
        await paced(work(), capacity.wait)


async def test_work_that_waits_for_capacity_can_be_cancelled() -> None:
    capacity, cleaned = Capacity(), asyncio.Event()

    async def work() -> None:
        try:
            await awaited("first")
        finally:
            cleaned.set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        working = tasks.create_task(paced(work(), capacity.wait))
        await capacity.asked.wait()
        working.cancel()
    assert cleaned.is_set()
    assert working.cancelled()


@asynccontextmanager
async def emitting_thread(
    capacity: Capacity, over: threading.Event
) -> AsyncIterator[list[AgentEvent]]:
    """A thread that emits four times `MAX_UNCHECKED_BYTES`, piece by piece."""
    emitted: list[AgentEvent] = []
    emitter = ThreadEmitter(emitted.append, capacity.wait, over, asyncio.get_running_loop())

    def show() -> None:
        for _ in range(8):
            emitter.emit(ToolCallStreamDelta("call", "tool", "x" * (MAX_UNCHECKED_BYTES // 2 + 1)))

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(show))
        yield emitted


async def test_a_thread_waits_for_capacity_when_it_emits() -> None:
    capacity = Capacity()
    async with emitting_thread(capacity, threading.Event()) as emitted:
        await capacity.asked.wait()
        assert len(emitted) == 2
        capacity.free.set()
    assert len(emitted) == 8


async def test_a_thread_whose_call_is_over_does_not_wait() -> None:
    capacity, over = Capacity(), threading.Event()
    async with emitting_thread(capacity, over) as emitted:
        await capacity.asked.wait()
        over.set()
    assert len(emitted) == 2
