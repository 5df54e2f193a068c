"""A journal bounds the events that wait for the database, by bytes and by number."""

import asyncio

import pytest

from app.domain.checkpoints import Checkpoint, CheckpointAnswer
from app.domain.errors import OutputOverflow, OwnershipLost
from app.domain.events.agent_events import AgentEvent
from app.domain.events.event_sizes import MAX_DELTA_BYTES
from app.domain.events.step_events import ReasoningDelta, StepEnd, TextDelta
from app.domain.events.tool_call_events import (
    ActivityDelta,
    ActivitySnapshot,
    ToolCallDelta,
    ToolCallStreamDelta,
)
from app.domain.ids import RunId, Tenant, ThreadId
from app.events.journal import Journal
from app.events.unsaved_bytes import BYTES_PER_EVENT, MAX_TOOL_OUTPUT_BYTES, MAX_UNSAVED_BYTES

pytestmark = pytest.mark.anyio

PIECE = "x" * MAX_DELTA_BYTES


def a_journal() -> Journal:
    """A journal that only the test flushes."""

    def never_saved(journal: Journal, _: Checkpoint) -> "asyncio.Future[CheckpointAnswer]":
        raise AssertionError(f"nothing is saved of {journal.run_id}")

    return Journal(
        tenant=Tenant("tenant"),
        thread_id=ThreadId("thread"),
        run_id=RunId("run"),
        attempt=1,
        wake=lambda _: None,
        wake_soon=lambda _: None,
        save=never_saved,
        on_lost=lambda: None,
    )


async def has_capacity(journal: Journal) -> bool:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(journal.wait_for_capacity())
        done, _ = await asyncio.wait({waiting}, timeout=0.01)
        waiting.cancel()
    return bool(done)


@pytest.mark.parametrize(
    "event, enough, too_many",
    [
        (TextDelta(PIECE), 15, 1),
        (TextDelta("\u00e4" * (MAX_DELTA_BYTES // 2)), 15, 1),
        (TextDelta("\U0001f419" * MAX_DELTA_BYTES), 3, 1),
        (TextDelta("\ud800" * (MAX_DELTA_BYTES // 3)), 15, 1),
        (ReasoningDelta(PIECE), 15, 1),
        (ToolCallDelta("call", PIECE), 15, 1),
        (ToolCallStreamDelta("call", "tool", PIECE), 15, 1),
        (ActivitySnapshot("call", "plan", {"steps": [PIECE]}, True), 15, 1),
        (ActivityDelta("call", "plan", [{"op": "add", "path": "/steps/-", "value": PIECE}]), 15, 1),
        (TextDelta("word " * 20), MAX_UNSAVED_BYTES // 100 - 100, 101),
        (StepEnd(), MAX_UNSAVED_BYTES // BYTES_PER_EVENT, 1),
    ],
    ids=[
        *("text", "two_bytes", "four_bytes", "half_a_pair"),
        *("reasoning", "arguments", "output", "activity", "patch", "joined", "many"),
    ],
)
async def test_an_emitter_over_the_limit_waits_until_its_events_are_flushed(
    event: AgentEvent, enough: int, too_many: int
) -> None:
    journal = a_journal()
    for _ in range(enough):
        journal.emit(event, 1)
    assert await has_capacity(journal)
    for _ in range(too_many):
        journal.emit(event, 1)
    assert not await has_capacity(journal)
    taken = journal.take()
    assert await has_capacity(journal)
    journal.put_back(taken)
    assert not await has_capacity(journal)


async def test_a_waiting_emitter_continues_after_the_flush() -> None:
    journal = a_journal()
    for _ in range(MAX_UNSAVED_BYTES // MAX_DELTA_BYTES + 1):
        journal.emit(TextDelta(PIECE), 1)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(journal.wait_for_capacity())
        tasks.create_task(take_when_waited_for(journal, waiting))


async def take_when_waited_for(journal: Journal, waiting: "asyncio.Task[None]") -> None:
    assert not waiting.done()
    journal.put_back(journal.take())
    await asyncio.wait({waiting}, timeout=0.01)
    assert not waiting.done(), "events that were put back count as pending"
    journal.take()


async def test_a_tool_that_never_waits_is_refused_at_its_output_limit() -> None:
    journal = a_journal()
    output = ToolCallStreamDelta("call", "tool", PIECE)
    for _ in range(MAX_TOOL_OUTPUT_BYTES // (MAX_DELTA_BYTES + BYTES_PER_EVENT) + 1):
        journal.emit(output, 1)
    with pytest.raises(OutputOverflow, match=r"await ctx\.wait_for_capacity"):
        journal.emit(output, 1)
    journal.emit(StepEnd(), 1)
    journal.take()
    journal.emit(output, 1)


async def test_an_emitter_of_a_lost_run_does_not_wait() -> None:
    journal = a_journal()
    for _ in range(MAX_UNSAVED_BYTES // MAX_DELTA_BYTES + 1):
        journal.emit(TextDelta(PIECE), 1)
    journal.abandon()
    with pytest.raises(OwnershipLost):
        await asyncio.wait_for(journal.wait_for_capacity(), 5)
