"""Background tasks that emit output faster than it can be saved wait like any call and don't fill the memory."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from app.commands.followups.background_tasks import list_tasks
from app.domain.children.background_tasks import Task, TaskFilter, TaskStatus
from app.domain.ids import CallId
from app.domain.slices import PageRequest
from app.events.unsaved_bytes import MAX_UNSAVED_BYTES
from app.llm.scripted.model import Call, in_order, turn
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.storage.postgres.connect import RawConnection
from app.tools.functions.decorator import tool
from tests.support.conditions import eventually
from tests.support.replicas import ANN, Run, an_agent, of_type, open_replica

pytestmark = pytest.mark.anyio

PIECE = "x" * 10_000
PIECES = 400
EQUAL_READINGS = 10
"""So often it is seen at the same place before it counts as standing still."""


@pytest.fixture
async def separate_connection(database_url: str) -> AsyncIterator[RawConnection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


class FloodingTool:
    """A tool that emits four megabytes in pieces that don't replace each other, once the gate opens."""

    def __init__(self) -> None:
        self.shown = 0
        self.begun = asyncio.Event()
        self.go = threading.Event()

    def _show(self, ctx: ToolContext) -> None:
        ctx.activity(f"piece-{self.shown}", PIECE)
        self.shown += 1

    def as_coroutine(self) -> Tool:
        async def chatty(ctx: ToolContext) -> str:
            self.begun.set()
            await asyncio.to_thread(self.go.wait)
            while self.shown < PIECES:
                self._show(ctx)
                await asyncio.sleep(0)  # noqa: TID251  any real tool awaits something now and then
            return "shown"

        return tool(effect="read")(chatty)

    def as_function(self) -> Tool:
        loop = asyncio.get_running_loop()

        def chatty(ctx: ToolContext) -> str:
            loop.call_soon_threadsafe(self.begun.set)
            self.go.wait()
            while self.shown < PIECES:
                self._show(ctx)
            return "shown"

        return tool(effect="read")(chatty)

    async def bytes_when_blocked(self) -> int:
        """The number of bytes that the tool has emitted when it is blocked."""
        seen: list[int] = []

        async def count_is_stable() -> bool:
            seen.append(self.shown)
            return len(seen) > EQUAL_READINGS and 0 < seen[-EQUAL_READINGS] == self.shown

        await eventually(count_is_stable)
        return self.shown * len(PIECE)


async def ended(run: Run) -> Task:
    async def ended_task() -> Task | None:
        found = await list_tasks(run.replica.ctx, ANN, run.id, TaskFilter(), PageRequest())
        return next((task for task in found if task.status.is_final), None)

    return await eventually(ended_task)


@pytest.mark.parametrize("made", [FloodingTool.as_coroutine, FloodingTool.as_function])
async def test_a_task_with_large_output_waits_until_its_output_is_saved(
    database_url: str, separate_connection: RawConnection, made: Callable[[FloodingTool], Tool]
) -> None:
    chatty = FloodingTool()
    agent = an_agent(made(chatty), background=["chatty"])
    script = in_order(turn(Call(tool="chatty", id=CallId("c1"))), turn("Waiting."), turn("Done."))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await asyncio.wait_for(chatty.begun.wait(), 15)
        async with separate_connection.transaction():
            # Every write about the run waits for this lock.
            await separate_connection.fetch("SELECT FROM runs WHERE id = $1 FOR UPDATE", run.id)
            chatty.go.set()
            shown = await chatty.bytes_when_blocked()
        task = await ended(run)
        emitted = await run.ended()
    assert shown < 2 * MAX_UNSAVED_BYTES
    assert task.status is TaskStatus.SUCCEEDED
    kinds = [one["activity_type"] for one in of_type(emitted, "activity_snapshot")]
    assert kinds == [f"piece-{number}" for number in range(PIECES)]


async def test_output_of_a_task_that_never_awaits_is_refused_at_a_bound(database_url: str) -> None:
    @tool(effect="read")
    async def never_awaiting(ctx: ToolContext) -> str:
        for number in range(1_000):
            ctx.activity(f"piece-{number}", PIECE)
        return "shown"

    agent = an_agent(never_awaiting, background=["never_awaiting"])
    script = in_order(
        turn(Call(tool="never_awaiting", id=CallId("c1"))), turn("Waiting."), turn("A pity.")
    )
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        task = await ended(run)
        await run.ended()
    assert task.status is TaskStatus.FAILED
    assert "await ctx.wait_for_capacity()" in (task.error or "")


async def test_replaced_output_that_was_not_saved_takes_no_memory(database_url: str) -> None:
    @tool(effect="read")
    async def replacing(ctx: ToolContext) -> str:
        for number in range(1_000):
            ctx.activity("piece", [number, PIECE])
        return "shown"

    agent = an_agent(replacing, background=["replacing"])
    script = in_order(
        turn(Call(tool="replacing", id=CallId("c1"))), turn("Waiting."), turn("Done.")
    )
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        task = await ended(run)
        emitted = await run.ended()
    assert task.status is TaskStatus.SUCCEEDED
    assert of_type(emitted, "activity_snapshot")[-1]["content"] == [999, PIECE]
