"""Background tasks that show more than can be saved: they wait like any other call, and fill no memory."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from app.commands.followups.background_tasks import list_tasks
from app.domain.children.background_tasks import Task, TaskStatus
from app.domain.ids import CallId
from app.events.unsaved_bytes import MAX_UNSAVED_BYTES
from app.llm.scripted.model import Call, in_order, turn
from app.runtime.ports import Tool, ToolContext
from app.storage.postgres.connect import RawConnection
from app.tools.functions.decorator import tool
from tests.support.conditions import eventually
from tests.support.house import ANN, Run, an_agent, of_type, replica

pytestmark = pytest.mark.anyio

PIECE = "x" * 10_000
PIECES = 400
LOOKS = 10
"""So often it is seen at the same place before it counts as standing still."""


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[RawConnection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


class Chatty:
    """A tool that shows four megabytes, once it may, none of which replaces anything."""

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
                await asyncio.sleep(0)  # noqa: TID251  as any tool awaits something now and then
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

    async def stands_still(self) -> int:
        """How much it has shown when it goes on no more."""
        seen: list[int] = []

        async def look() -> bool:
            seen.append(self.shown)
            return len(seen) > LOOKS and 0 < seen[-LOOKS] == self.shown

        await eventually(look)
        return self.shown * len(PIECE)


async def ended(run: Run) -> Task:
    async def look() -> Task | None:
        found = await list_tasks(run.replica.ctx, ANN, run.id, before=None, limit=1)
        return next((task for task in found if task.status.is_final), None)

    return await eventually(look)


@pytest.mark.parametrize("made", [Chatty.as_coroutine, Chatty.as_function])
async def test_a_task_that_shows_much_waits_until_it_is_saved(
    database_url: str, other: RawConnection, made: Callable[[Chatty], Tool]
) -> None:
    chatty = Chatty()
    agent = an_agent(made(chatty), background=["chatty"])
    script = in_order(turn(Call(tool="chatty", id=CallId("c1"))), turn("Waiting."), turn("Done."))
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await asyncio.wait_for(chatty.begun.wait(), 15)
        async with other.transaction():
            # Whatever is to be saved of the run waits for this.
            await other.fetch("SELECT FROM runs WHERE id = $1 FOR UPDATE", run.id)
            chatty.go.set()
            shown = await chatty.stands_still()
        task = await ended(run)
        said = await run.ended()
    assert shown < 2 * MAX_UNSAVED_BYTES
    assert task.status is TaskStatus.COMPLETED
    kinds = [one["activity_type"] for one in of_type(said, "activity_snapshot")]
    assert kinds == [f"piece-{number}" for number in range(PIECES)]


async def test_a_task_that_never_waits_is_refused_at_last(database_url: str) -> None:
    @tool(effect="read")
    async def rude(ctx: ToolContext) -> str:
        for number in range(1_000):
            ctx.activity(f"piece-{number}", PIECE)
        return "shown"

    agent = an_agent(rude, background=["rude"])
    script = in_order(turn(Call(tool="rude", id=CallId("c1"))), turn("Waiting."), turn("A pity."))
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        task = await ended(run)
        await run.ended()
    assert task.status is TaskStatus.FAILED
    assert "await ctx.room()" in (task.error or "")


async def test_what_is_replaced_before_it_is_saved_takes_no_room(database_url: str) -> None:
    @tool(effect="read")
    async def busy(ctx: ToolContext) -> str:
        for number in range(1_000):
            ctx.activity("piece", [number, PIECE])
        return "shown"

    agent = an_agent(busy, background=["busy"])
    script = in_order(turn(Call(tool="busy", id=CallId("c1"))), turn("Waiting."), turn("Done."))
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        task = await ended(run)
        said = await run.ended()
    assert task.status is TaskStatus.COMPLETED
    assert of_type(said, "activity_snapshot")[-1]["content"] == [999, PIECE]
