"""Calls at the gate: what a plugin's block means for the others, and when an approval is asked for."""

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Blocked, NaturalEnd
from app.llm.scripted.model import turn
from app.runtime.plugins import PERMISSION, Block, Phase, Plugin
from tests.support.hooks import Hooks, about, watching
from tests.support.plain_runs import PlainRun
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


def end_of(run: PlainRun) -> object:
    state = run.rows.record.state
    assert isinstance(state, Done)
    return state.termination


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_no_call_behind_a_blocked_one_is_made(mode: ToolExecution) -> None:
    probe = Probe(effect="read")
    hooks = Hooks({Phase.TOOL_GATE: about("c2", Block("not this one"))})
    run = PlainRun(
        turn(probe.call("c1"), probe.call("c2"), probe.call("c3")),
        tools=[probe.tool],
        plugins=[hooks.plugin],
        tool_execution=mode,
    )
    await run.start()
    assert isinstance(end_of(run), Blocked)
    assert [one.call_id for one in probe.handed] == ["c1"]
    assert hooks.calls(Phase.TOOL_GATE) == ["c1", "c2"]


@pytest.mark.parametrize(
    "names, asks",
    [([], True), (["other"], True), ([PERMISSION], False), (["a", PERMISSION], False)],
)
async def test_the_permission_plugin_replaces_the_agents_approval_list(
    names: list[str], asks: bool
) -> None:
    probe = Probe(effect="read")
    run = PlainRun(
        turn(probe.call("c1")),
        tools=[probe.tool],
        plugins=[Plugin(name=name) for name in names],
        approval=("probe",),
    )
    await run.start()
    assert len(run.rows.open_tickets) == asks
    assert len(probe.handed) == (not asks)
    if not asks:
        assert end_of(run) == NaturalEnd()


async def test_hooks_before_the_first_call_need_no_save() -> None:
    probe = Probe(effect="read")
    run = PlainRun(
        turn(probe.call("c1")),
        tools=[probe.tool],
        plugins=[watching(Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE).plugin],
    )
    await run.start()
    assert run.rows.record.run_state is not None
    assert run.rows.record.run_state["revision"] == 3
