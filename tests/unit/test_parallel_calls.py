"""Parallel calls whose run is handed over to another worker: which results are kept, and what runs again."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.ids import CallId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Blocked, NaturalEnd
from app.domain.tools.tool_calls import (
    INTERRUPTED,
    Effect,
    SuspensionRequest,
    ToolDescriptor,
    ToolResult,
)
from app.llm.scripted.model import Call, turn
from app.runtime.endings import HandedOver
from app.runtime.plugins import Block, HookView, Phase, Request, Suspend
from app.runtime.ports.tool_context import ToolContext
from tests.support.hooks import Hooks, nothing
from tests.support.plain_runs import PlainRun
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


class Returning:
    """A tool that returns a given result. Before that, it does what the test says."""

    def __init__(self, result: ToolResult, effect: Effect = Effect.UNSAFE) -> None:
        self.descriptor = ToolDescriptor(
            name="returning", description="", parameters={}, effect=effect
        )
        self.before: Callable[[], object] = lambda: None
        self.called: list[str] = []
        self._result = result

    def invalid_arguments(self, arguments: Any) -> str | None:
        return None

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        self.called.append(context.call_id)
        self.before()
        return self._result


PAID = ToolResult.success("returning", "paid")
ASKS = ToolResult.suspended("returning", SuspensionRequest("Sure?"))


def parallel_run(tool: Returning, calls: Sequence[str], *plugins: Hooks) -> PlainRun:
    """A run with these parallel calls; it is handed over while the tool executes."""
    run = PlainRun(
        turn(*(Call(tool="returning", arguments={}, id=CallId(id)) for id in calls)),
        turn("Done."),
        tools=[tool],
        plugins=[each.plugin for each in plugins],
        tool_execution=ToolExecution.PARALLEL,
    )
    tool.before = lambda: run.interruption.hand_over(now=True)
    return run


def end_of(run: PlainRun) -> object:
    state = run.rows.record.state
    assert isinstance(state, Done)
    return state.termination


def results(run: PlainRun) -> list[str]:
    return [text for role, text in run.texts if role == "tool"]


@pytest.mark.parametrize("calls", [["c1"], ["c1", "c2"]])
async def test_a_result_that_comes_with_the_hand_over_is_kept(calls: list[str]) -> None:
    tool = Returning(PAID)
    run = parallel_run(tool, calls)
    assert await run.start() == HandedOver()
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert tool.called == calls
    assert results(run) == ["paid"] * len(calls)


@pytest.mark.parametrize("returned, shown", [(PAID, "paid"), (ASKS, INTERRUPTED)])
async def test_a_call_behind_one_that_is_blocked_meanwhile_keeps_its_result(
    returned: ToolResult, shown: str
) -> None:
    asks: Sequence[Request] = [Suspend(SuspensionRequest("Sure?"))]

    def gate(view: HookView) -> Sequence[Request]:
        return asks if view.call is not None and view.call.id == "c1" else ()

    tool = Returning(returned)
    run = parallel_run(tool, ["c1", "c2", "c3"], Hooks({Phase.TOOL_GATE: gate}))
    assert await run.start() == HandedOver()
    asks = [Block("not any more")]
    await run.execute()
    assert isinstance(end_of(run), Blocked)
    assert tool.called == ["c2", "c3"]
    assert results(run) == ["not any more", shown, shown]


async def test_hooks_before_a_call_are_not_called_again_when_it_is_rerun() -> None:
    hooks = Hooks({Phase.BEFORE_TOOL_EXECUTE: nothing})
    probe = Probe(effect="read", held=True)
    run = PlainRun(
        turn(probe.call("c1"), probe.call("c2")),
        turn("Done."),
        tools=[probe.tool],
        plugins=[hooks.plugin],
        tool_execution=ToolExecution.PARALLEL,
    )
    await run.create()
    await run.lose_worker(probe.reached)
    called = hooks.calls(Phase.BEFORE_TOOL_EXECUTE)
    probe.open.set()
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert called == hooks.calls(Phase.BEFORE_TOOL_EXECUTE) == ["c1", "c2"]
