"""State changes of tools: which count when calls run in parallel or are lost."""

import asyncio
from typing import Any

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.json_values import JsonObject
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd
from app.domain.threads.messages import Role
from app.llm.scripted.model import Call, turn
from app.runtime.plugins import Phase, Plugin
from app.runtime.ports.tool_context import ToolContext
from app.runtime.state import MergeStrategy, StateKey, UpdateRejected
from app.tools.functions.decorator import tool
from tests.support.hooks import watching
from tests.support.plain_runs import PlainRun, until

pytestmark = pytest.mark.anyio


def _no_bad_words(_: Any, update: Any) -> Any:
    if update == "bad":
        raise UpdateRejected("no bad words")
    if update == "broken":
        raise ValueError("the reducer broke")
    return update


TITLE: StateKey[Any, Any] = StateKey("test.title", lambda: None, apply=_no_bad_words)
COUNT: StateKey[int, int] = StateKey(
    "test.count",
    lambda: 0,
    apply=lambda before, more: before + more,
    merge=MergeStrategy.COMMUTATIVE,
)


@tool(effect="read")
async def note(ctx: ToolContext, title: str = "", count: int = 0, fails: bool = False) -> str:
    """Change the state."""
    if title:
        ctx.update(TITLE, title)
    if count:
        ctx.update(COUNT, count)
    if fails:
        raise ValueError("failed after all")
    return "noted"


def noting(id: str, **arguments: Any) -> Call:
    return Call(tool="note", arguments=arguments, id=id)  # type: ignore[arg-type]


def a_run(*calls: Call, mode: ToolExecution, tools: Any = (note,), plugins: Any = ()) -> PlainRun:
    keys = Plugin(name="keys", keys=(TITLE, COUNT))
    return PlainRun(
        turn(*calls),
        turn("Done."),
        tools=tools,
        plugins=[keys, *plugins],
        tool_execution=mode,
    )


def state_of(run: PlainRun) -> JsonObject:
    record = run.rows.record
    assert isinstance(record.state, Done)
    assert record.state.termination == NaturalEnd()
    assert record.run_state is not None
    extensions: JsonObject = record.run_state["extensions"]
    return {name: value for name, value in extensions.items() if name.startswith("test.")}


def results(run: PlainRun) -> dict[str, str]:
    """What the model read of each call."""
    messages = [entry.message for entry in run.rows.log if entry.message.role is Role.TOOL]
    return {str(message.tool_call_id): message.text for message in messages}


def metadata(run: PlainRun) -> dict[str, Any]:
    return {
        one["tool_call_id"]: one["result"].get("metadata") for one in run.events("tool_call_done")
    }


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_the_changes_of_calls_add_up_in_their_order(mode: ToolExecution) -> None:
    run = a_run(noting("c1", count=2), noting("c2", count=3, title="a"), mode=mode)
    await run.start()
    assert state_of(run) == {"test.count": 5, "test.title": "a"}
    assert results(run) == {"c1": "noted", "c2": "noted"}


async def test_sequential_calls_may_change_the_same_key() -> None:
    run = a_run(noting("c1", title="a"), noting("c2", title="b"), mode=ToolExecution.SEQUENTIAL)
    await run.start()
    assert state_of(run) == {"test.title": "b"}
    assert results(run) == {"c1": "noted", "c2": "noted"}


async def test_of_conflicting_parallel_calls_the_first_wins_and_the_other_is_an_error() -> None:
    run = a_run(
        noting("c1", title="a"), noting("c2", title="b", count=1), mode=ToolExecution.PARALLEL
    )
    await run.start()
    assert state_of(run) == {"test.title": "a"}
    assert results(run)["c1"] == "noted"
    assert results(run)["c2"] == (
        "noted\n[Its changes to the state were dropped: call c1, which ran at the same time,"
        " has changed 'test.title'.]"
    )
    assert metadata(run) == {
        "c1": None,
        "c2": {"state_conflict": {"key": "test.title", "with": "c1"}},
    }


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_rejected_change_is_reported_and_the_others_are_applied(
    mode: ToolExecution,
) -> None:
    run = a_run(noting("c1", title="bad", count=4), mode=mode)
    await run.start()
    state = state_of(run)
    assert state["test.count"] == 4
    assert state.get("test.title") is None
    assert results(run) == {
        "c1": "noted\n[The state refused some of its changes: test.title: no bad words]"
    }
    assert metadata(run) == {"c1": {"state_refused": {"test.title": "no bad words"}}}


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_changes_that_break_the_state_are_dropped_together(mode: ToolExecution) -> None:
    run = a_run(noting("c1", title="broken", count=4), mode=mode)
    await run.start()
    assert state_of(run) == {}
    assert results(run) == {
        "c1": "noted\n[Its changes to the state were dropped: the reducer broke]"
    }


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_call_that_fails_changes_nothing(mode: ToolExecution) -> None:
    run = a_run(noting("c1", count=4, fails=True), noting("c2", count=1), mode=mode)
    await run.start()
    assert state_of(run) == {"test.count": 1}


@pytest.mark.parametrize("with_hook", [False, True])
async def test_changes_of_a_call_before_its_worker_was_lost_count_once(with_hook: bool) -> None:
    """The first call still runs when the outcome of the second one is stored unreported."""
    noted, may_end, times = asyncio.Event(), asyncio.Event(), []

    @tool(effect="read")
    async def slow(ctx: ToolContext) -> str:
        """Take long."""
        times.append(1)
        ctx.update(TITLE, "slow")
        noted.set()
        await may_end.wait()
        return "slow"

    first = Call(tool="slow", arguments={}, id="c1")  # type: ignore[arg-type]
    hooks = watching(Phase.AFTER_TOOL_EXECUTE)
    run = a_run(
        first,
        noting("c2", count=3),
        noting("c3", title="other"),
        mode=ToolExecution.PARALLEL,
        tools=(slow, note),
        plugins=[hooks.plugin] if with_hook else [],
    )
    committed_once = asyncio.Event()

    def watch_commits(active: Any) -> None:
        commit = active.store.commit

        async def committed(checkpoint: Any) -> Any:
            answer = await commit(checkpoint)
            done = [
                one for one in run.system.calls.values() if one[0].unreported_result is not None
            ]
            if len(done) == 2:
                committed_once.set()
            return answer

        class Watched:
            commit = staticmethod(committed)

        active.store = Watched()

    run.before_it_executes = watch_commits
    await run.create()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run.execute())
        await until(noted)
        await until(committed_once)
        task.cancel()
    may_end.set()
    run.before_it_executes = lambda _: None
    await run.execute()
    assert state_of(run) == {"test.count": 3, "test.title": "slow"}
    assert results(run)["c2"] == "noted"
    assert "call c1, which ran at the same time" in results(run)["c3"]
    assert len(times) == 2
