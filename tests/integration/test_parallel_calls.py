"""Parallel calls: executed concurrently, reported in order, and never run again once they have results."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.agents.specs import ToolExecution
from app.domain.json_values import Json
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.tool_calls import INTERRUPTED, ToolDescriptor, ToolResult
from app.llm.scripted.model import in_order, turn
from app.runtime.plugins import Phase, Plugin
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.tools.functions.decorator import tool
from tests.support.conditions import eventually
from tests.support.finishes import asked_by
from tests.support.hooks import Hooks, nothing
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, of_type, open_replica, texts_of, types_of

pytestmark = pytest.mark.anyio


def side_by_side(
    *tools: Tool, plugins: Sequence[Plugin] = (), approval: Sequence[str] = ()
) -> Catalog:
    return an_agent(
        *tools, plugins=plugins, approval=approval, tool_execution=ToolExecution.PARALLEL
    )


async def result_is_stored(run: Run, call_id: str) -> bool:
    """Waits until a call's result is durable, reported or not."""

    async def is_final() -> bool:
        return (await run.calls()).get(call_id) not in (None, "pending", "running")

    return await eventually(is_final)


def done_ids(emitted: Sequence[dict[str, object]]) -> list[object]:
    return [event["tool_call_id"] for event in emitted if event["event_type"] == "tool_call_done"]


async def results(run: Run) -> list[tuple[str | None, str]]:
    """The results in the log, with their calls."""
    return [
        (entry.message.tool_call_id, entry.message.text)
        for entry in await run.log()
        if entry.message.tool_call_id
    ]


async def test_calls_execute_concurrently_and_are_reported_in_order(database_url: str) -> None:
    slow, fast = Probe(name="slow", held=True), Probe(name="fast")
    script = in_order(turn(slow.call("c1"), fast.call("c2"), fast.call("c3")), turn("done"))
    async with open_replica(database_url, side_by_side(slow.tool, fast.tool), script) as replica:
        run = await replica.start()
        await slow.was_reached()
        assert await result_is_stored(run, "c2")
        assert await run.calls() == {"c1": "running", "c2": "succeeded", "c3": "succeeded"}
        # Neither is reported, because the first call has no result yet.
        assert await results(run) == []
        slow.open.set()
        emitted = await run.finished()
        assert await results(run) == [
            ("c1", "slow did it"),
            ("c2", "fast did it"),
            ("c3", "fast did it"),
        ]
    assert done_ids(emitted) == ["c1", "c2", "c3"]
    shown = [m.text for m in script.requests[1].messages if m.tool_call_id]
    assert shown == ["slow did it", "fast did it", "fast did it"]


async def test_all_calls_are_saved_as_running_before_any_begins(database_url: str) -> None:
    seen: list[dict[str, str]] = []
    runs: list[Run] = []
    started = asyncio.Event()

    @tool
    async def look() -> str:
        await started.wait()
        seen.append(await runs[0].calls())
        return "looked"

    call = Probe(name="look").call
    script = in_order(turn(call("c1"), call("c2")), turn("done"))
    async with open_replica(database_url, side_by_side(look), script) as replica:
        runs.append(await replica.start())
        started.set()
        await runs[0].finished()
    assert seen[0] == {"c1": "running", "c2": "running"}


async def test_activity_of_calls_is_interleaved(database_url: str) -> None:
    turns = [asyncio.Event(), asyncio.Event()]

    @tool
    async def talk(ctx: ToolContext) -> str:
        me = int(ctx.call_id[1]) - 1
        for word in ("one", "two"):
            await turns[me].wait()
            turns[me].clear()
            ctx.stream_output(f"{ctx.call_id} {word}")
            turns[1 - me].set()
        return "said"

    turns[0].set()
    call = Probe(name="talk").call
    script = in_order(turn(call("c1"), call("c2")), turn("done"))
    async with open_replica(database_url, side_by_side(talk), script) as replica:
        emitted = await (await replica.start()).finished()
    assert [one["delta"] for one in of_type(emitted, "tool_call_stream_delta")] == [
        "c1 one",
        "c2 one",
        "c1 two",
        "c2 two",
    ]


async def test_parallel_tools_one_fails_other_succeeds(database_url: str) -> None:
    good = Probe(name="good")

    @tool
    async def bad() -> str:
        raise ValueError("no luck")

    calls = Probe(name="bad").call("c1"), good.call("c2"), Probe(name="bad").call("c3")
    script = in_order(turn(*calls), turn("done"))
    async with open_replica(database_url, side_by_side(bad, good.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert await results(run) == [
            ("c1", "Execution failed: no luck"),
            ("c2", "good did it"),
            ("c3", "Execution failed: no luck"),
        ]
    assert [one["result"]["outcome"] for one in of_type(emitted, "tool_call_done")] == [
        "failed",
        "succeeded",
        "failed",
    ]


async def test_parallel_tools_succeed_and_suspend_independent_states(database_url: str) -> None:
    asks, works = Probe(name="asks", asks=1), Probe(name="works")
    needs = Probe(name="needs")
    script = in_order(
        turn(asks.call("c1"), works.call("c2"), needs.call("c3"), works.call("c4")), turn("done")
    )
    agent = side_by_side(asks.tool, works.tool, needs.tool, approval=["needs"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["c1", "perm_c3"]
        assert await run.calls() == {
            "c1": "suspended",
            "c2": "succeeded",
            "c3": "suspended",
            "c4": "succeeded",
        }
        assert len(works.handed) == 2
        await run.decide("c1", "approve", result="yes")
        await run.finished(2)
        await run.decide("perm_c3", "approve")
        emitted = await run.finished(3)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert [len(probe.handed) for probe in (asks, works, needs)] == [2, 2, 1]


async def test_resumed_calls_are_executed_one_by_one(database_url: str) -> None:
    together = 0
    most = 0

    @tool
    async def risky() -> str:
        nonlocal together, most
        together += 1
        most = max(most, together)
        turn_over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, turn_over.set)
        await turn_over.wait()
        together -= 1
        return "ok"

    call = Probe(name="risky").call
    script = in_order(turn(call("c1"), call("c2")), turn(call("c3"), call("c4")), turn("done"))
    async with open_replica(
        database_url, side_by_side(risky, approval=["risky"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "approve")
        await run.finished(2)
        await run.decide("perm_c2", "approve")
        emitted = await run.finished(3)
    assert most == 1
    assert asked_by(emitted[-1]) == ["perm_c3", "perm_c4"]


# --- crashes and cancels --------------------------------------------------------------------------


async def test_an_unreported_result_is_reported_by_the_next_worker(database_url: str) -> None:
    slow, fast = Probe(name="slow", held=True, effect="idempotent"), Probe(name="fast")
    agent = side_by_side(slow.tool, fast.tool)
    script = in_order(turn(slow.call("c1"), fast.call("c2", "this")))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await slow.was_reached()
        await result_is_stored(run, "c2")
        await first.kill()
    slow.open.set()
    async with open_replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        emitted = await run.finished()
        assert await results(run) == [("c1", "slow did it"), ("c2", "fast did this")]
    assert [len(probe.handed) for probe in (slow, fast)] == [2, 1]
    assert slow.handed[0] == slow.handed[1]
    done = of_type(emitted, "tool_call_done")
    assert [one["tool_call_id"] for one in done] == ["c1", "c2"]
    assert done[1]["result"]["text"] == "fast did this"


async def test_a_takeover_opens_tickets_for_unsafe_calls_reruns_others_and_repeats_no_result(
    database_url: str,
) -> None:
    unsafe, safe = Probe(name="unsafe", held=True), Probe(name="safe", held=True, effect="read")
    fast, asks = Probe(name="fast"), Probe(name="asks", asks=1)
    agent = side_by_side(unsafe.tool, safe.tool, fast.tool, asks.tool)
    script = in_order(
        turn(unsafe.call("c1"), safe.call("c2"), fast.call("c3"), asks.call("c4")),
    )
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await unsafe.was_reached()
        await safe.was_reached()
        await result_is_stored(run, "c3")
        await result_is_stored(run, "c4")
        await first.kill()
    safe.open.set()
    script = in_order(turn("done"))
    async with open_replica(database_url, agent, script) as second:
        run = second.same(run)
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["unknown_c1", "c4"]
        kinds = {ticket.call_id: ticket.kind for ticket in await run.tickets()}
        assert kinds == {"c1": TicketKind.OUTCOME_UNKNOWN, "c4": TicketKind.INPUT}
        assert [len(probe.handed) for probe in (unsafe, safe, fast, asks)] == [1, 2, 1, 1]
        await run.decide("unknown_c1", "respond", result="it had run")
        await run.finished(2)
        await run.decide("c4", "approve", result="yes")
        emitted = await run.finished(3)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    shown = {m.tool_call_id: m.text for m in script.requests[0].messages if m.tool_call_id}
    assert shown == {
        "c1": "it had run",
        "c2": "safe did it",
        "c3": "fast did it",
        "c4": "asks did it",
    }
    assert types_of(emitted).count("run_start") == 3


async def test_a_cancel_interrupts_all_calls_and_keeps_finished_results(database_url: str) -> None:
    slow, fast = Probe(name="slow", held=True), Probe(name="fast")
    script = in_order(turn(slow.call("c1"), fast.call("c2"), slow.call("c3")))
    async with open_replica(database_url, side_by_side(slow.tool, fast.tool), script) as replica:
        run = await replica.start()
        await slow.was_reached()
        await result_is_stored(run, "c2")
        await run.cancel("enough")
        emitted = await run.finished()
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("enough")
        assert await results(run) == [
            ("c1", INTERRUPTED),
            ("c2", "fast did it"),
            ("c3", INTERRUPTED),
        ]
        assert await run.calls() == {}
        following = await replica.start(thread_id=run.thread_id)
        await following.finished()
    assert done_ids(emitted) == ["c1", "c2", "c3"]


async def test_a_handed_over_batch_continues_with_the_remaining_calls(database_url: str) -> None:
    slow, fast = Probe(name="slow", held=True, effect="read"), Probe(name="fast")
    agent = side_by_side(slow.tool, fast.tool)
    script = in_order(turn(slow.call("c1"), fast.call("c2")))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await slow.was_reached()
        await result_is_stored(run, "c2")
        await first.worker.stop(grace=0)
    slow.open.set()
    async with open_replica(database_url, agent, in_order(turn("done"))) as second:
        emitted = await second.same(run).finished()
        assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert [len(probe.handed) for probe in (slow, fast)] == [2, 1]


# --- phases ---------------------------------------------------------------------------------------


async def test_hooks_see_parallel_calls_in_their_order(database_url: str) -> None:
    slow, fast = Probe(name="slow", held=True), Probe(name="fast")
    hooks = Hooks(
        dict.fromkeys(
            [Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE, Phase.AFTER_TOOL_EXECUTE], nothing
        )
    )
    script = in_order(turn(slow.call("c1"), fast.call("c2")), turn("done"))
    agent = side_by_side(slow.tool, fast.tool, plugins=[hooks.plugin])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await slow.was_reached()
        await result_is_stored(run, "c2")
        slow.open.set()
        await run.finished()
        assert texts_of(await run.log())[-1] == ("assistant", "done")
    asked = [(view.phase, view.call.id) for view in hooks.seen if view.call]
    assert asked == [
        (Phase.TOOL_GATE, "c1"),
        (Phase.TOOL_GATE, "c2"),
        (Phase.BEFORE_TOOL_EXECUTE, "c1"),
        (Phase.BEFORE_TOOL_EXECUTE, "c2"),
        (Phase.AFTER_TOOL_EXECUTE, "c1"),
        (Phase.AFTER_TOOL_EXECUTE, "c2"),
    ]


async def test_a_tool_that_raises_instead_of_returning_does_not_fail_the_run(
    database_url: str,
) -> None:
    class RaisingTool:
        descriptor = ToolDescriptor(name="rude", description="", parameters={"type": "object"})

        def invalid_arguments(self, arguments: Json) -> str | None:
            return None

        async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            raise RuntimeError("no manners")

    probe = Probe()
    script = in_order(turn(Probe(name="rude").call("c1"), probe.call("c2")), turn("done"))
    async with open_replica(
        database_url, side_by_side(RaisingTool(), probe.tool), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        assert await results(run) == [
            ("c1", "Execution failed: no manners"),
            ("c2", "probe did it"),
        ]
