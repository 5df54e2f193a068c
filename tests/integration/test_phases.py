"""Plugins in a run: when hooks are called, what they see, and the effect of their requests."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.ids import ThreadId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import BehaviorRequested, Failed, Stopped
from app.llm.scripted.model import in_order, turn
from app.runtime.plugins import Block, HookView, Phase, Plugin, Request, Stop
from app.runtime.state import Change, StateKey, StateScope
from tests.support.hooks import watching
from tests.support.probes import Probe
from tests.support.replicas import Event, Run, an_agent, of_type, open_replica, texts_of, types_of

pytestmark = pytest.mark.anyio

VISITS: StateKey[int, int] = StateKey("visits", lambda: 0, scope=StateScope.THREAD)
ROUNDS: StateKey[int, int] = StateKey("rounds", lambda: 0)
PER_RUN = [Phase.RUN_START, Phase.RUN_END]
PER_STEP = [
    Phase.STEP_START,
    Phase.BEFORE_INFERENCE,
    Phase.AFTER_INFERENCE,
    Phase.STEP_END,
]


def requesting(phase: Phase, *requests: Request, name: str = "asking", keys: Any = ()) -> Plugin:
    """A plugin that makes the same request in each call of a phase."""

    async def hook(_: HookView) -> Sequence[Request]:
        return requests

    return Plugin(name=name, hooks={phase: hook}, keys=keys)


async def termination(run: Run) -> object:
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state.termination


def snapshots(emitted: Sequence[Event]) -> list[dict[str, Any]]:
    return [event["snapshot"] for event in of_type(emitted, "state_snapshot")]


async def test_run_start_and_run_end_hooks_fire_exactly_once(database_url: str) -> None:
    witness, probe = watching(*PER_RUN, *PER_STEP), Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[witness.plugin]), script
    ) as replica:
        await (await replica.start()).finished()
    start, *between, end = witness.phases
    assert [start, end] == PER_RUN
    assert between == PER_STEP * 2


async def test_hooks_see_the_current_state_of_the_run(database_url: str) -> None:
    witness = watching(Phase.STEP_START, Phase.AFTER_INFERENCE)
    script = in_order(turn("one"), turn("two"))
    async with open_replica(database_url, an_agent(plugins=[witness.plugin]), script) as replica:
        run = await replica.start("hello")
        await run.finished()
    before, after = witness.seen
    assert [entry.message.text for entry in before.log] == ["hello"]
    assert (before.agent.id, before.steps, before.answer) == ("tester", 0, None)
    assert after.answer is not None
    assert after.answer.text == "one"
    assert after.usage.output_tokens > 0


@pytest.mark.parametrize("phase", [Phase.RUN_START, Phase.STEP_START, Phase.BEFORE_INFERENCE])
async def test_a_stop_before_an_inference_prevents_it(database_url: str, phase: Phase) -> None:
    plugin = requesting(phase, Stop(BehaviorRequested()))
    async with open_replica(database_url, an_agent(plugins=[plugin]), in_order()) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert await termination(run) == BehaviorRequested()
        assert (await run.now()).usage.output_tokens == 0
    assert types_of(emitted).count("inference_complete") == 0


async def test_after_inference_stop_prevents_tool_execution(database_url: str) -> None:
    probe = Probe()
    plugin = requesting(Phase.AFTER_INFERENCE, Stop(Stopped("enough")))
    script = in_order(turn("calling ", probe.call("c1")))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[plugin]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        assert await termination(run) == Stopped("enough")
        log = await run.log()
    assert probe.handed == []
    assert texts_of(log)[1:] == [
        ("assistant", "calling "),
        ("tool", "[Tool execution was interrupted]"),
    ]


async def test_a_stop_at_the_end_of_a_step_keeps_the_step(database_url: str) -> None:
    probe = Probe()
    plugin = requesting(Phase.STEP_END, Stop(Stopped("enough")))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[plugin]), in_order(turn(probe.call("c1")))
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record = await run.now()
        assert (await termination(run), record.steps) == (Stopped("enough"), 1)
        assert texts_of(await run.log())[-1] == ("tool", "probe did it")
    assert types_of(emitted)[-4:] == ["state_snapshot", "step_end", "state_snapshot", "run_finish"]


async def test_a_hook_that_raises_ends_the_run_with_its_error(database_url: str) -> None:
    async def broken(_: HookView) -> Sequence[Request]:
        raise ZeroDivisionError("no")

    plugin = Plugin(name="broken", hooks={Phase.BEFORE_INFERENCE: broken})
    async with open_replica(database_url, an_agent(plugins=[plugin]), in_order()) as replica:
        run = await replica.start()
        emitted = await run.finished()
        failed = await termination(run)
    assert isinstance(failed, Failed)
    assert failed.code == "plugin_failed"
    assert "'broken' failed in phase 'before_inference': ZeroDivisionError: no" in failed.detail
    assert emitted[-1]["termination"]["code"] == "plugin_failed"


async def test_a_request_that_a_phase_does_not_offer_ends_the_run(database_url: str) -> None:
    plugin = requesting(Phase.STEP_START, Block("no"))
    async with open_replica(database_url, an_agent(plugins=[plugin]), in_order()) as replica:
        run = await replica.start()
        await run.finished()
        failed = await termination(run)
    assert isinstance(failed, Failed)
    assert "Block can't be requested there" in failed.detail


async def test_a_failing_run_end_hook_does_not_undo_a_cancel(database_url: str) -> None:
    async def broken(_: HookView) -> Sequence[Request]:
        raise ZeroDivisionError("no")

    probe = Probe(held=True)
    plugin = Plugin(name="broken", hooks={Phase.RUN_END: broken})
    script = in_order(turn(probe.call("c1")))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[plugin]), script
    ) as replica:
        run = await replica.start()
        await probe.was_reached()
        await run.cancel()
        emitted = await run.finished()
    assert emitted[-1]["termination"] == {"type": "cancelled"}


async def test_multiple_plugins_same_phase_both_fire(database_url: str) -> None:
    first, second = (watching(Phase.STEP_START, name=name) for name in ("first", "second"))
    catalog = an_agent(plugins=[first.plugin, second.plugin])
    async with open_replica(database_url, catalog, in_order(turn("done"))) as replica:
        await (await replica.start()).finished()
    assert first.phases == second.phases == [Phase.STEP_START]


async def test_a_hook_whose_state_key_changed_is_called_again_with_the_new_state(
    database_url: str,
) -> None:
    async def count(view: HookView) -> Sequence[Request]:
        return [Change(ROUNDS, view.state.get(ROUNDS) + 1)]

    plugins = [
        Plugin(name=name, keys=[ROUNDS], hooks={Phase.STEP_START: count}) for name in ("a", "b")
    ]
    async with open_replica(
        database_url, an_agent(plugins=plugins), in_order(turn("done"))
    ) as replica:
        emitted = await (await replica.start()).finished()
    assert snapshots(emitted)[-1]["extensions"]["rounds"] == 2


async def test_run_state_ends_with_its_run_and_thread_state_persists(database_url: str) -> None:
    async def count(view: HookView) -> Sequence[Request]:
        state = view.state
        return [Change(VISITS, state.get(VISITS) + 1), Change(ROUNDS, state.get(ROUNDS) + 1)]

    plugin = Plugin(name="counter", keys=[VISITS, ROUNDS], hooks={Phase.STEP_START: count})
    script = in_order(turn("one"), turn("two"))
    async with open_replica(database_url, an_agent(plugins=[plugin]), script) as replica:
        first = await replica.start()
        await first.finished()
        second = await replica.start(thread_id=ThreadId(first.thread_id))
        emitted = await second.finished()
    extensions = snapshots(emitted)[-1]["extensions"]
    assert (extensions["visits"], extensions["rounds"]) == (2, 1)


async def test_run_state_is_restored_on_continuation(database_url: str) -> None:
    async def count(view: HookView) -> Sequence[Request]:
        return [Change(ROUNDS, view.state.get(ROUNDS) + 1)]

    probe = Probe()
    plugin = Plugin(name="counter", keys=[ROUNDS], hooks={Phase.STEP_START: count})
    script = in_order(turn(probe.call("c1")), turn("done"))
    catalog = an_agent(probe.tool, approval=["probe"], plugins=[plugin])
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
    async with open_replica(database_url, catalog, script) as other:
        here = other.same(run)
        await here.decide("perm_c1", "approve")
        emitted = await here.finished(2)
    assert snapshots(emitted)[-1]["extensions"]["rounds"] == 2


async def test_state_snapshot_revision_increases_across_steps(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn(probe.call("c2")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        emitted = await (await replica.start()).finished()
    revisions = [snapshot["revision"] for snapshot in snapshots(emitted)]
    assert revisions == sorted(revisions)
    assert len(set(revisions)) >= 3
    assert len(revisions) == types_of(emitted).count("step_end") + 1
