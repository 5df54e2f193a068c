"""Hooks of plugins: their views, their order, and that their changes apply at once."""

from collections.abc import Sequence

import pytest

from app.domain.runs.runs import Done
from app.domain.runs.terminations import Blocked
from app.domain.threads.messages import Role
from app.domain.tools.tool_calls import INTERRUPTED, ToolResult
from app.llm.scripted.model import in_order, turn
from app.runtime.plugins import Block, HookView, Phase, Plugin, Request, SetResult
from app.runtime.state import Change, StateKey
from tests.support.hooks import Hooks, about, nothing, watching
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, of_type, open_replica

pytestmark = pytest.mark.anyio

SEEN: StateKey[list[str], list[str]] = StateKey("seen", list)


async def results(run: Run) -> list[str]:
    return [entry.message.text for entry in await run.log() if entry.message.role is Role.TOOL]


async def test_phase_hooks_fire_during_loop_with_tool_call_phases(database_url: str) -> None:
    witness, probe = watching(*Phase), Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    agent = an_agent(probe.tool, plugins=[witness.plugin])
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).finished()
    assert [view.phase.value for view in witness.seen] == [
        "run_start",
        *("step_start", "before_inference", "after_inference"),
        *("tool_gate", "before_tool_execute", "after_tool_execute", "step_end"),
        *("step_start", "before_inference", "after_inference", "step_end"),
        "run_end",
    ]


async def test_step_start_fires_per_step_and_before_inference_hook_sees_step_count(
    database_url: str,
) -> None:
    witness, probe = watching(Phase.STEP_START, Phase.BEFORE_INFERENCE), Probe()
    script = in_order(turn(probe.call("c1")), turn(probe.call("c2")), turn("done"))
    agent = an_agent(probe.tool, plugins=[witness.plugin])
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).finished()
    assert [(view.phase, view.steps) for view in witness.seen] == [
        (phase, steps)
        for steps in (0, 1, 2)
        for phase in (Phase.STEP_START, Phase.BEFORE_INFERENCE)
    ]


async def test_after_inference_hook_sees_llm_response(database_url: str) -> None:
    witness = watching(Phase.AFTER_INFERENCE)
    async with open_replica(
        database_url, an_agent(plugins=[witness.plugin]), in_order(turn("Hello!"))
    ) as replica:
        await (await replica.start()).finished()
    [view] = witness.seen
    assert view.answer is not None
    assert view.answer.text == "Hello!"


async def test_phase_hook_receives_tool_context(database_url: str) -> None:
    witness, probe = watching(Phase.BEFORE_TOOL_EXECUTE), Probe()
    script = in_order(turn(probe.call("c1", "it")), turn("done"))
    agent = an_agent(probe.tool, plugins=[witness.plugin])
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).finished()
    [view] = witness.seen
    assert view.call is not None
    assert (view.call.id, view.call.name, view.call.arguments) == ("c1", "probe", {"text": "it"})


async def test_after_tool_execute_hook_sees_tool_result(database_url: str) -> None:
    witness, probe = watching(Phase.AFTER_TOOL_EXECUTE), Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    agent = an_agent(probe.tool, plugins=[witness.plugin])
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).finished()
    [view] = witness.seen
    assert view.result == ToolResult.success("probe", "probe did it")


async def test_plugin_context_mutation_visible_in_same_step(database_url: str) -> None:
    received: list[list[str]] = []

    async def write(_: HookView) -> Sequence[Request]:
        return [Change(SEEN, ["step_start"])]

    async def read(view: HookView) -> Sequence[Request]:
        received.append(view.state.get(SEEN))
        return []

    hooks = {Phase.STEP_START: write, Phase.BEFORE_INFERENCE: read}
    plugin = Plugin(name="memory", keys=[SEEN], hooks=hooks)
    async with open_replica(
        database_url, an_agent(plugins=[plugin]), in_order(turn("done"))
    ) as replica:
        await (await replica.start()).finished()
    assert received == [["step_start"]]


async def test_permission_hook_blocks_denied_tool_and_allows_non_targeted_tool(
    database_url: str,
) -> None:
    allowed, denied = Probe(name="allowed"), Probe(name="denied")
    hooks = Hooks({Phase.TOOL_GATE: about("c2", Block("denied by policy"))})
    script = in_order(turn(allowed.call("c1")), turn(denied.call("c2")))
    agent = an_agent(allowed.tool, denied.tool, plugins=[hooks.plugin])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        state = (await run.now()).state
    assert isinstance(state, Done)
    assert state.termination == Blocked("denied by policy")
    assert (len(allowed.handed), len(denied.handed)) == (1, 0)


async def test_intercept_set_result_emits_tool_call_done_event(database_url: str) -> None:
    probe = Probe()
    given = SetResult(ToolResult.success("probe", "given"))
    hooks = Hooks({Phase.TOOL_GATE: about("c1", given)})
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        emitted = await (await replica.start()).finished()
    [done] = of_type(emitted, "tool_call_done")
    assert (done["result"]["outcome"], done["result"]["text"]) == ("succeeded", "given")


async def test_set_result_intercept_on_specific_tool_only(database_url: str) -> None:
    probe, other = Probe(), Probe(name="other")
    given = SetResult(ToolResult.success("probe", "given"))
    hooks = Hooks({Phase.TOOL_GATE: about("c1", given), Phase.AFTER_TOOL_EXECUTE: nothing})
    script = in_order(turn(probe.call("c1"), other.call("c2")), turn("done"))
    agent = an_agent(probe.tool, other.tool, plugins=[hooks.plugin])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        assert await results(run) == ["given", "other did it"]
    assert (len(probe.handed), len(other.handed)) == (0, 1)


async def test_checkpoint_stores_blocked_tool_batch_consistently(database_url: str) -> None:
    probe = Probe()
    hooks = Hooks({Phase.TOOL_GATE: about("c1", Block("no"))})
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        log = await run.log()
    assert [entry.message.role for entry in log] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
        Role.TOOL,
    ]
    assert [entry.message.text for entry in log[2:]] == ["no", INTERRUPTED]
