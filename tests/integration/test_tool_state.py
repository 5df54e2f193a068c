"""State that tools read and change: together with their results, or not at all."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.agents.specs import ToolExecution
from app.domain.threads.messages import Role
from app.domain.tools.tool_calls import ToolResult
from app.llm.scripted.model import in_order, turn
from app.runtime.plugins import Phase, Plugin
from app.runtime.ports import Tool, ToolContext
from app.runtime.state import MergeStrategy, StateKey, StateScope, UpdateRejected
from app.tools.functions.decorator import tool
from tests.support.conditions import eventually
from tests.support.hooks import Hooks, nothing
from tests.support.house import Run, an_agent, of_type, replica
from tests.support.probes import Probe

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
STRANGER: StateKey[int, int] = StateKey("stranger", lambda: 0)


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


async def test_one_after_the_other_calls_see_what_was_changed_before(database_url: str) -> None:
    script = in_order(turn(call("count", "c1"), call("count", "c2")), turn("done"))
    async with replica(database_url, agent(count), script) as house:
        run = await house.start()
        said = await run.finished()
        assert await results(run) == ["0", "1"]
        assert await state_of(run) == {"count": 2}
    shown = of_type(said, "state_snapshot")[0]["snapshot"]["extensions"]
    assert shown["count"] == 2


async def test_what_a_thread_remembers_is_there_for_its_next_run(database_url: str) -> None:
    script = in_order(turn(call("note", "c1")), turn("one"), turn(call("note", "c2")), turn("two"))
    async with replica(database_url, agent(note), script) as house:
        run = await house.start()
        await run.finished()
        following = await house.start(thread_id=run.thread_id)
        await following.finished()
        assert await results(following) == ["[]", '["c1"]']


async def test_changes_come_with_the_result_in_one_commit(database_url: str) -> None:
    behind = Probe(name="behind", held=True)
    script = in_order(turn(call("count", "c1"), behind.call("c2")), turn("done"))
    async with replica(database_url, agent(count, behind.tool), script) as house:
        run = await house.start()
        await behind.was_reached()
        assert await run.calls() == {"c1": "succeeded", "c2": "running"}
        assert await state_of(run) == {"count": 1}
        await house.kill()
    async with replica(database_url, agent(count, behind.tool), in_order(turn("done"))) as house:
        run = house.same(run)
        await run.finished()
        assert await state_of(run) == {"count": 1}


@pytest.mark.parametrize("how", ["raises", "returns an error"])
async def test_a_call_that_fails_changes_nothing(database_url: str, how: str) -> None:
    @tool
    async def fails(ctx: ToolContext) -> ToolResult:
        ctx.update(COUNT, 1)
        if how == "raises":
            raise ValueError("no")
        return ToolResult.error("fails", "no")

    script = in_order(turn(call("fails", "c1")), turn("done"))
    async with replica(database_url, agent(fails), script) as house:
        run = await house.start()
        await run.finished()
        assert await state_of(run) == {}


async def test_a_key_that_nobody_registered_and_an_update_that_is_not_json_fail_in_the_tool(
    database_url: str,
) -> None:
    @tool
    async def strange(ctx: ToolContext) -> None:
        ctx.update(STRANGER, 1)

    @tool
    async def odd(ctx: ToolContext) -> None:
        careless: Any = object()
        ctx.update(COUNT, careless)

    script = in_order(turn(call("strange", "c1"), call("odd", "c2")), turn("done"))
    async with replica(database_url, agent(strange, odd), script) as house:
        run = await house.start()
        await run.finished()
        first, second = await results(run)
        assert first == "Execution failed: the state key 'stranger' isn't registered"
        assert second.startswith("Execution failed: Object of type object is not JSON")


async def test_an_update_that_is_refused_is_told(database_url: str) -> None:
    @tool
    async def down(ctx: ToolContext) -> str:
        ctx.update(COUNT, -1)
        return "down"

    script = in_order(turn(call("down", "c1")), turn("done"))
    async with replica(database_url, agent(down), script) as house:
        run = await house.start()
        said = await run.finished()
        assert await results(run) == [
            "down\n[The state refused some of its changes: count: only up]"
        ]
        assert await state_of(run) == {}
    [done] = of_type(said, "tool_call_done")
    assert done["result"]["metadata"] == {"state_refused": {"count": "only up"}}


async def test_a_reducer_that_breaks_costs_the_call_its_changes_only(database_url: str) -> None:
    def breaks(_: int, __: int) -> int:
        raise ZeroDivisionError("oh")

    key: StateKey[int, int] = StateKey("breaks", lambda: 0, breaks)

    @tool
    async def push(ctx: ToolContext) -> str:
        ctx.update(key, 1)
        return "pushed"

    plugin = Plugin(name="breaking", keys=[key])
    script = in_order(turn(call("push", "c1")), turn("done"))
    async with replica(database_url, agent(push, plugins=[plugin]), script) as house:
        run = await house.start()
        said = await run.finished()
        assert await results(run) == ["pushed\n[Its changes to the state were dropped: oh]"]
    assert said[-1]["termination"] == {"type": "natural_end"}


async def test_hooks_after_a_call_see_what_it_changed(database_url: str) -> None:
    hooks = Hooks({Phase.BEFORE_TOOL_EXECUTE: nothing, Phase.AFTER_TOOL_EXECUTE: nothing})
    script = in_order(turn(call("count", "c1")), turn("done"))
    async with replica(database_url, agent(count, plugins=[hooks.plugin]), script) as house:
        await (await house.start()).finished()
    assert [view.state.get(COUNT) for view in hooks.seen] == [0, 1]


# --- side by side ---------------------------------------------------------------------------------


async def test_side_by_side_all_calls_see_the_same_and_commutative_changes_add_up(
    database_url: str,
) -> None:
    script = in_order(turn(call("note", "c1"), call("note", "c2")), turn("done"))
    async with replica(database_url, agent(note, parallel=True), script) as house:
        run = await house.start()
        said = await run.finished()
        assert await results(run) == ["[]", "[]"]
    assert of_type(said, "state_snapshot")[-1]["snapshot"]["extensions"]["notes"] == ["c1", "c2"]


async def test_of_two_that_change_the_same_the_earlier_call_wins(database_url: str) -> None:
    """parallel_tools_have_independent_state_entries: what they don't share is kept of both."""
    slow = Probe(name="slow", held=True)

    @tool(name="slow")
    async def slow_count(ctx: ToolContext) -> str:
        ctx.update(COUNT, 10)
        slow.reached.set()
        await slow.open.wait()
        return "slow"

    script = in_order(turn(slow.call("c1"), call("count", "c2"), call("note", "c3")), turn("done"))
    async with replica(
        database_url, agent(slow_count, count, note, parallel=True), script
    ) as house:
        run = await house.start()
        await slow.was_reached()

        async def is_kept() -> bool:
            return (await run.calls()).get("c2") == "succeeded"

        await eventually(is_kept)
        # Nothing of it is taken in before it is known what the call before it wants.
        assert await state_of(run) == {}
        slow.open.set()
        said = await run.finished()
        assert await state_of(run) == {"count": 10}
        first, second, third = await results(run)
    assert (first, third) == ("slow", "[]")
    assert second == (
        "0\n[Its changes to the state were dropped: call c1, which ran at the same time,"
        " has changed 'count'.]"
    )
    done = of_type(said, "tool_call_done")
    assert [one["result"].get("metadata") for one in done] == [
        None,
        {"state_conflict": {"key": "count", "with": "c1"}},
        None,
    ]
    assert done[1]["result"]["data"] == 0


@pytest.mark.parametrize("conflicting", [True, False])
async def test_changes_that_were_not_told_survive_their_worker(
    database_url: str, conflicting: bool
) -> None:
    """The first call's change was told before the crash, or is made again after it; the last one's
    wasn't told, and only counts where the first had no such wish."""
    held = Probe(name="held", held=True, effect="read")

    @tool(name="first")
    async def first_tool(ctx: ToolContext) -> str:
        if conflicting:
            ctx.update(COUNT, 10)
        else:
            ctx.update(NOTES, "first")
        return "first"

    def house_agent() -> Catalog:
        return agent(first_tool, held.tool, count, parallel=True)

    script = in_order(turn(call("first", "c1"), held.call("c2"), call("count", "c3")))
    async with replica(database_url, house_agent(), script) as house:
        run = await house.start()
        await held.was_reached()

        async def both_are_saved() -> bool:
            calls = await run.calls()
            return {calls.get("c1"), calls.get("c3")} == {"succeeded"}

        await eventually(both_are_saved)
        await house.kill()
    held.open.set()
    async with replica(database_url, house_agent(), in_order(turn("done"))) as house:
        run = house.same(run)
        said = await run.finished()
        assert await state_of(run) == ({"count": 10} if conflicting else {"count": 1})
    [_, _, last] = of_type(said, "tool_call_done")
    assert ("state_conflict" in last["result"].get("metadata", {})) == conflicting
