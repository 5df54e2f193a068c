"""Paused runs: they suspend at the next step border, and a plugin's pause counts once."""

import asyncio

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.runs.runs import MANUAL_PAUSE, Done, Waiting, WaitingReason
from app.domain.runs.terminations import NaturalEnd
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.llm.scripted.model import turn
from app.runtime.plugins import Pause, Phase
from tests.support.finishes import asked_by
from tests.support.hooks import Hooks
from tests.support.plain_runs import PlainRun, until
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


def is_paused(run: PlainRun) -> bool:
    state = run.rows.record.state
    return isinstance(state, Waiting) and (state.reason, state.message) == (
        WaitingReason.MANUAL_PAUSE,
        MANUAL_PAUSE,
    )


def paused_by(run: PlainRun) -> list[tuple[str, str | None]]:
    """The subject and the reason of the run's pause."""
    return [(one["requested_by"], one.get("reason")) for one in run.events("pause_requested")]


async def test_a_run_that_executes_is_paused_at_its_next_step_border() -> None:
    probe = Probe(held=True)
    run = PlainRun(turn(probe.call("c1")), turn("Done."), tools=[probe.tool])
    await run.create()
    async with asyncio.TaskGroup() as group:
        group.create_task(run.execute())
        await until(probe.reached)
        run.system.request_pause("look")
        probe.open.set()
    assert is_paused(run)
    assert len(run.requests) == 1
    assert run.events("tool_call_done")
    run.system.end_pause()
    await run.execute()
    assert run.rows.record.is_done
    assert len(run.requests) == 2
    assert len(probe.handed) == 1


@pytest.mark.parametrize("phase", [Phase.RUN_START, Phase.STEP_START, Phase.STEP_END])
async def test_a_plugin_pauses_its_run_at_the_next_step_border(phase: Phase) -> None:
    probe = Probe()
    hooks = Hooks({phase: lambda view: [Pause("look")] if view.steps == 0 else []}, name="guard")
    run = PlainRun(
        turn(probe.call("c1")), turn("Done."), tools=[probe.tool], plugins=[hooks.plugin]
    )
    await run.start()
    assert is_paused(run)
    assert len(run.requests) == (1 if phase is Phase.STEP_END else 0)
    assert paused_by(run) == [("plugin:guard", "look")]


async def test_the_first_plugin_that_pauses_a_run_counts() -> None:
    one = Hooks({Phase.STEP_START: lambda _: [Pause("first"), Pause("second")]}, name="one")
    other = Hooks({Phase.STEP_START: lambda _: [Pause("third")]}, name="other")
    run = PlainRun(turn("Done."), plugins=[one.plugin, other.plugin])
    await run.start()
    assert is_paused(run)
    assert paused_by(run) == [("plugin:one", "first")]


async def test_an_existing_pause_request_is_not_replaced() -> None:
    hooks = Hooks({Phase.STEP_END: lambda _: [Pause("second")]}, name="guard")
    probe = Probe(held=True)
    run = PlainRun(
        turn(probe.call("c1")), turn("Done."), tools=[probe.tool], plugins=[hooks.plugin]
    )
    await run.create()
    async with asyncio.TaskGroup() as group:
        group.create_task(run.execute())
        await until(probe.reached)
        run.system.request_pause("first")
        probe.open.set()
    assert is_paused(run)
    assert paused_by(run) == [("ann", "first")]


async def test_a_run_without_a_pause_ends_by_itself() -> None:
    hooks = Hooks({Phase.STEP_START: lambda _: []})
    run = PlainRun(turn("Done."), plugins=[hooks.plugin])
    await run.start()
    assert isinstance(run.rows.record.state, Done)
    assert run.rows.record.state.termination == NaturalEnd()


async def test_a_pause_removed_before_the_step_border_has_no_effect() -> None:
    run = PlainRun(turn("Done."))
    await run.create()
    run.system.request_pause()
    run.before_it_executes = lambda _: run.system.end_pause()
    await run.execute()
    assert run.rows.record.is_done


async def test_a_taken_over_paused_run_closes_its_open_step() -> None:
    probe = Probe(effect="read", held=True)
    run = PlainRun(turn(probe.call("c1")), turn("Done."), tools=[probe.tool])
    await run.create()
    await run.lose_worker(probe.reached)
    run.system.request_pause()
    await run.execute()
    assert is_paused(run)
    probe.open.set()
    run.system.end_pause()
    await run.execute()
    assert run.rows.record.is_done
    assert [one.call_id for one in probe.handed] == ["c1", "c1"]


async def test_a_paused_run_shows_the_questions_that_are_still_open() -> None:
    probe = Probe(asks=2)
    run = PlainRun(
        turn(probe.call("c1"), probe.call("c2")),
        turn("Done."),
        tools=[probe.tool],
        tool_execution=ToolExecution.PARALLEL,
    )
    await run.start()
    answered, unanswered = run.rows.open_tickets
    await run.system.decide(answered, DecisionAnswer(action=Action.RESPOND, result="yes"))
    run.system.request_pause()
    await run.execute()
    assert is_paused(run)
    [finish] = run.events("run_finish")[-1:]
    assert asked_by(finish) == [unanswered.name]
