"""State that tools read and change: committed with their results, or not at all."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.agents.specs import ToolExecution
from app.domain.threads.messages import Role
from app.domain.tools.tool_calls import ToolResult
from app.llm.scripted.model import in_order, turn
from app.runtime.plugins import Phase, Plugin
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.runtime.state import MergeStrategy, StateKey, StateScope, UpdateRejected
from app.tools.functions.decorator import tool
from tests.support.conditions import eventually
from tests.support.hooks import Hooks, nothing
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, of_type, open_replica

pytestmark = pytest.mark.anyio


def _add(value: int, update: int) -> int:
    if update < 0:
        raise UpdateRejected("only up")
    return value + update


def _append(value: list[str], update: str) -> list[str]:
    return [*value, update]


COUNT: StateKey[int, int] = StateKey("count", lambda: 0, _add)
NOTES: StateKey[list[str], str] = StateKey(
    "notes", list, _append, merge=MergeStrategy.COMMUTATIVE, scope=StateScope.THREAD
)
UNREGISTERED: StateKey[int, int] = StateKey("unregistered", lambda: 0)


@tool
async def count(ctx: ToolContext, by: int = 1) -> int:
    ctx.update(COUNT, by)
    return ctx.state(COUNT)


@tool
async def note(ctx: ToolContext) -> list[str]:
    ctx.update(NOTES, ctx.call_id)
    return ctx.state(NOTES)


KEYS = Plugin(name="keys", keys=[COUNT, NOTES])


def agent(*tools: Tool, parallel: bool = False, plugins: Sequence[Plugin] = ()) -> Catalog:
    mode = ToolExecution.PARALLEL if parallel else ToolExecution.SEQUENTIAL
    return an_agent(*tools, plugins=[KEYS, *plugins], tool_execution=mode)


def call(name: str, id: str) -> Any:
    return Probe(name=name).call(id)


async def results(run: Run) -> list[str]:
    return [e.message.text for e in await run.log() if e.message.role is Role.TOOL]


async def state_of(run: Run) -> dict[str, Any]:
    stored = (await run.now()).run_state or {}
    return {k: v for k, v in stored["extensions"].items() if not k.startswith("__")}


async def test_sequential_calls_see_earlier_changes(database_url: str) -> None:
    script = in_order(turn(call("count", "c1"), call("count", "c2")), turn("done"))
    async with open_replica(database_url, agent(count), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert await results(run) == ["0", "1"]
        assert await state_of(run) == {"count": 2}
    shown = of_type(emitted, "state_snapshot")[0]["snapshot"]["extensions"]
    assert shown["count"] == 2


async def test_thread_state_is_available_to_the_next_run(database_url: str) -> None:
    script = in_order(turn(call("note", "c1")), turn("one"), turn(call("note", "c2")), turn("two"))
    async with open_replica(database_url, agent(note), script) as replica:
        run = await replica.start()
        await run.finished()
        following = await replica.start(thread_id=run.thread_id)
        await following.finished()
        assert await results(following) == ["[]", '["c1"]']


async def test_state_changes_are_committed_with_the_result(database_url: str) -> None:
    behind = Probe(name="behind", held=True)
    script = in_order(turn(call("count", "c1"), behind.call("c2")), turn("done"))
    async with open_replica(database_url, agent(count, behind.tool), script) as replica:
        run = await replica.start()
        await behind.was_reached()
        assert await run.calls() == {"c1": "succeeded", "c2": "running"}
        assert await state_of(run) == {"count": 1}
        await replica.kill()
    async with open_replica(
        database_url, agent(count, behind.tool), in_order(turn("done"))
    ) as replica:
        run = replica.same(run)
        await run.finished()
        assert await state_of(run) == {"count": 1}


@pytest.mark.parametrize("how", ["raises", "returns an error"])
async def test_a_failed_call_changes_no_state(database_url: str, how: str) -> None:
    @tool
    async def fails(ctx: ToolContext) -> ToolResult:
        ctx.update(COUNT, 1)
        if how == "raises":
            raise ValueError("no")
        return ToolResult.error("fails", "no")

    script = in_order(turn(call("fails", "c1")), turn("done"))
    async with open_replica(database_url, agent(fails), script) as replica:
        run = await replica.start()
        await run.finished()
        assert await state_of(run) == {}


async def test_an_unregistered_key_and_an_update_that_is_not_json_fail_in_the_tool(
    database_url: str,
) -> None:
    @tool
    async def strange(ctx: ToolContext) -> None:
        ctx.update(UNREGISTERED, 1)

    @tool
    async def odd(ctx: ToolContext) -> None:
        refusals: Any = object()
        ctx.update(COUNT, refusals)

    script = in_order(turn(call("strange", "c1"), call("odd", "c2")), turn("done"))
    async with open_replica(database_url, agent(strange, odd), script) as replica:
        run = await replica.start()
        await run.finished()
        first, second = await results(run)
        assert first == "Execution failed: the state key 'unregistered' isn't registered"
        assert second.startswith("Execution failed: Object of type object is not JSON")


async def test_a_refused_update_is_reported(database_url: str) -> None:
    @tool
    async def down(ctx: ToolContext) -> str:
        ctx.update(COUNT, -1)
        return "down"

    script = in_order(turn(call("down", "c1")), turn("done"))
    async with open_replica(database_url, agent(down), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert await results(run) == [
            "down\n[The state refused some of its changes: count: only up]"
        ]
        assert await state_of(run) == {}
    [done] = of_type(emitted, "tool_call_done")
    assert done["result"]["metadata"] == {"state_refused": {"count": "only up"}}


async def test_a_reducer_that_raises_drops_only_the_changes_of_its_call(database_url: str) -> None:
    def breaks(_: int, __: int) -> int:
        raise ZeroDivisionError("oh")

    key: StateKey[int, int] = StateKey("breaks", lambda: 0, breaks)

    @tool
    async def push(ctx: ToolContext) -> str:
        ctx.update(key, 1)
        return "pushed"

    plugin = Plugin(name="breaking", keys=[key])
    script = in_order(turn(call("push", "c1")), turn("done"))
    async with open_replica(database_url, agent(push, plugins=[plugin]), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert await results(run) == ["pushed\n[Its changes to the state were dropped: oh]"]
    assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_hooks_after_a_call_see_its_state_changes(database_url: str) -> None:
    hooks = Hooks({Phase.BEFORE_TOOL_EXECUTE: nothing, Phase.AFTER_TOOL_EXECUTE: nothing})
    script = in_order(turn(call("count", "c1")), turn("done"))
    async with open_replica(database_url, agent(count, plugins=[hooks.plugin]), script) as replica:
        await (await replica.start()).finished()
    assert [view.state.get(COUNT) for view in hooks.seen] == [0, 1]


# --- side by side ---------------------------------------------------------------------------------


async def test_parallel_calls_see_the_same_state_and_commutative_changes_add_up(
    database_url: str,
) -> None:
    script = in_order(turn(call("note", "c1"), call("note", "c2")), turn("done"))
    async with open_replica(database_url, agent(note, parallel=True), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert await results(run) == ["[]", "[]"]
    assert of_type(emitted, "state_snapshot")[-1]["snapshot"]["extensions"]["notes"] == ["c1", "c2"]


async def test_of_two_parallel_changes_of_one_key_the_earlier_call_wins(database_url: str) -> None:
    """parallel_tools_have_independent_state_entries: changes of different keys are kept from both."""
    slow = Probe(name="slow", held=True)

    @tool(name="slow")
    async def slow_count(ctx: ToolContext) -> str:
        ctx.update(COUNT, 10)
        slow.reached.set()
        await slow.open.wait()
        return "slow"

    script = in_order(turn(slow.call("c1"), call("count", "c2"), call("note", "c3")), turn("done"))
    async with open_replica(
        database_url, agent(slow_count, count, note, parallel=True), script
    ) as replica:
        run = await replica.start()
        await slow.was_reached()

        async def is_stored() -> bool:
            return (await run.calls()).get("c2") == "succeeded"

        await eventually(is_stored)
        # Its changes are applied only after those of the call before it.
        assert await state_of(run) == {}
        slow.open.set()
        emitted = await run.finished()
        assert await state_of(run) == {"count": 10}
        first, second, third = await results(run)
    assert (first, third) == ("slow", "[]")
    assert second == (
        "0\n[Its changes to the state were dropped: call c1, which ran at the same time,"
        " has changed 'count'.]"
    )
    done = of_type(emitted, "tool_call_done")
    assert [one["result"].get("metadata") for one in done] == [
        None,
        {"state_conflict": {"key": "count", "with": "c1"}},
        None,
    ]
    assert done[1]["result"]["data"] == 0


@pytest.mark.parametrize("conflicting", [True, False])
async def test_unreported_changes_survive_their_worker(
    database_url: str, conflicting: bool
) -> None:
    """The first call's change was reported before the crash, or is repeated after it. The last
    call's change wasn't reported, and is applied only if the first doesn't change the same key."""
    held = Probe(name="held", held=True, effect="read")

    @tool(name="first")
    async def first_tool(ctx: ToolContext) -> str:
        if conflicting:
            ctx.update(COUNT, 10)
        else:
            ctx.update(NOTES, "first")
        return "first"

    def parallel_agent() -> Catalog:
        return agent(first_tool, held.tool, count, parallel=True)

    script = in_order(turn(call("first", "c1"), held.call("c2"), call("count", "c3")))
    async with open_replica(database_url, parallel_agent(), script) as replica:
        run = await replica.start()
        await held.was_reached()

        async def both_are_saved() -> bool:
            calls = await run.calls()
            return {calls.get("c1"), calls.get("c3")} == {"succeeded"}

        await eventually(both_are_saved)
        await replica.kill()
    held.open.set()
    async with open_replica(database_url, parallel_agent(), in_order(turn("done"))) as replica:
        run = replica.same(run)
        emitted = await run.finished()
        assert await state_of(run) == ({"count": 10} if conflicting else {"count": 1})
    [_, _, last] = of_type(emitted, "tool_call_done")
    assert ("state_conflict" in last["result"].get("metadata", {})) == conflicting
