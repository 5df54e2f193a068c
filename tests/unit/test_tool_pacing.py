"""A tool is held up by itself while there is no room for what it shows, and let go when nobody listens."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.domain.events.run_events import AgentEvent, ToolCallStreamDelta
from app.tools.functions.output_pacing import OUTPUT_TIME_SHARE, ThreadEmitter, paced

pytestmark = pytest.mark.anyio


class Room:
    """There is room while `free` is set."""

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


async def test_work_goes_on_after_an_await_only_when_there_is_room() -> None:
    room, done = Room(), list[str]()

    async def work() -> str:
        done.append(await awaited("first"))
        done.append(await awaited("second"))
        return "result"

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        working = tasks.create_task(paced(work(), room.wait))
        await room.asked.wait()
        assert done == []
        room.free.set()
    assert done == ["first", "second"]
    assert working.result() == "result"


async def test_an_error_of_what_was_awaited_is_the_works_to_handle() -> None:
    room = Room()
    room.free.set()

    async def work() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "too late"
        return "never"

    assert await asyncio.wait_for(paced(work(), room.wait), 5) == "too late"


async def test_an_error_of_the_work_is_the_callers() -> None:
    async def work() -> None:
        await awaited("first")
        raise LookupError("lost")

    room = Room()
    room.free.set()
    with pytest.raises(LookupError, match="lost"):
        await paced(work(), room.wait)


async def test_work_that_waits_for_room_can_be_cancelled_and_cleans_up() -> None:
    room, cleaned = Room(), asyncio.Event()

    async def work() -> None:
        try:
            await awaited("first")
        finally:
            cleaned.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        working = tasks.create_task(paced(work(), room.wait))
        await room.asked.wait()
        working.cancel()
    assert cleaned.is_set()
    assert working.cancelled()


@asynccontextmanager
async def showing(room: Room, over: threading.Event) -> AsyncIterator[list[AgentEvent]]:
    """A thread that shows four shares, piece by piece."""
    said: list[AgentEvent] = []
    voice = ThreadEmitter(said.append, room.wait, over, asyncio.get_running_loop())

    def show() -> None:
        for _ in range(8):
            voice.emit(ToolCallStreamDelta("call", "tool", "x" * (OUTPUT_TIME_SHARE // 2 + 1)))

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(show))
        yield said


async def test_a_thread_waits_where_it_shows() -> None:
    room = Room()
    async with showing(room, threading.Event()) as said:
        await room.asked.wait()
        assert len(said) == 2
        room.free.set()
    assert len(said) == 8


async def test_a_thread_whose_call_is_over_waits_for_nothing() -> None:
    room, over = Room(), threading.Event()
    async with showing(room, over) as said:
        await room.asked.wait()
        over.set()
    assert len(said) == 2
