"""Hand-offs: which agent is active on a thread, and what the next agent takes over."""

from typing import Any

import pytest

from app.domain.ids import AgentId, CallId
from app.domain.json_values import JsonObject
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Blocked, NaturalEnd
from app.domain.structs import replace
from app.llm.scripted.model import Call, turn
from app.runtime.agent import ResolvedAgent, UnknownAgentVersion
from app.runtime.handoff import (
    ACTIVE_AGENT,
    REQUESTED_AGENT,
    active_agent,
    handoff_change,
    with_active_agent,
)
from app.runtime.plugins import HandOff, Phase, Plugin, PluginSet
from app.runtime.state import Change, StateKey
from tests.support.hooks import Hooks
from tests.support.plain_runs import SPEC, PlainRun

pytestmark = pytest.mark.anyio

BOSS = AgentId("boss")
NOTES: StateKey[list[str], str] = StateKey(
    "test.notes", lambda: [], apply=lambda notes, note: [*notes, note]
)


def at_work(agent: AgentId, version: str | None) -> JsonObject:
    return {ACTIVE_AGENT.name: {"agent_id": agent, "version": version}}


@pytest.mark.parametrize(
    "state, found",
    [
        ({}, None),
        ({ACTIVE_AGENT.name: None}, None),
        ({ACTIVE_AGENT.name: {"agent_id": "boss"}}, None),
        (at_work(BOSS, None), None),
        (at_work(BOSS, "v1"), (BOSS, "v1")),
    ],
)
def test_the_active_agent_is_the_one_that_took_over_last(state: JsonObject, found: object) -> None:
    assert active_agent(state) == found


def test_only_a_thread_with_a_hand_off_stores_the_active_agent() -> None:
    assert with_active_agent({"other": 1}, SPEC) == {"other": 1}
    assert with_active_agent({ACTIVE_AGENT.name: None}, SPEC) == {ACTIVE_AGENT.name: None}
    remembered = with_active_agent({"other": 1, **at_work(BOSS, "v1")}, SPEC)
    assert remembered == {"other": 1, **at_work(SPEC.id, SPEC.version)}


def noting(name: str) -> Plugin:
    """A plugin that records when its agent is activated and deactivated."""
    return Plugin(
        name="notes",
        keys=(NOTES,),
        on_activate=lambda spec, _: [Change(NOTES, f"{name} begins as {spec.id}")],
        on_deactivate=lambda _: [Change(NOTES, f"{name} ends")],
    )


def handing_off(to: AgentId) -> Plugin:
    """A plugin that hands its run off after the first step."""
    hooks = Hooks({Phase.STEP_END: lambda view: [HandOff(to)] if view.steps == 0 else []})
    return hooks.plugin


def a_team(*turns: Any, to: AgentId = BOSS) -> PlainRun:
    """A run of the clerk, who hands it off after a first step that calls an unknown tool."""
    run = PlainRun(*turns, plugins=[handing_off(to), noting("clerk")])
    boss = replace(SPEC, id=BOSS)
    run.others[BOSS] = ResolvedAgent(
        spec=boss,
        model=run.agent.model,
        tools={},
        plugins=PluginSet([noting("boss"), Plugin(name="silent")]),
    )
    return run


def vain_step() -> Any:
    """A step that isn't the last one: it calls an unknown tool."""
    return turn(Call(tool="none", arguments={}, id=CallId("c1")))


def notes(run: PlainRun) -> object:
    assert run.rows.record.run_state is not None
    return run.rows.record.run_state["extensions"].get(NOTES.name)


def end_of(run: PlainRun) -> object:
    state = run.rows.record.state
    assert isinstance(state, Done)
    return state.termination


async def test_another_agent_takes_over_from_the_next_step() -> None:
    run = a_team(vain_step(), turn("Done."))
    await run.start()
    assert end_of(run) == NaturalEnd()
    assert notes(run) == ["clerk begins as clerk", "clerk ends", "boss begins as boss"]
    boss = run.others[BOSS]
    assert isinstance(boss, ResolvedAgent)
    assert run.rows.thread_state == at_work(BOSS, boss.spec.version)
    assert run.rows.record.run_state is not None
    assert REQUESTED_AGENT.name not in {
        name for name, value in run.rows.record.run_state["extensions"].items() if value is not None
    }


async def test_a_hand_off_to_the_active_agent_changes_nothing() -> None:
    run = a_team(vain_step(), turn("Done."), to=SPEC.id)
    await run.start()
    assert end_of(run) == NaturalEnd()
    assert notes(run) == ["clerk begins as clerk"]
    assert run.rows.thread_state == {}


async def test_a_hand_off_to_an_unknown_agent_ends_the_run_and_leaves_the_thread() -> None:
    run = a_team(vain_step(), turn("Done."))
    run.others[BOSS] = UnknownAgentVersion("no such agent")
    await run.start()
    assert end_of(run) == Blocked("handoff resolve failed: no such agent")
    assert run.rows.thread_state == {}
    assert notes(run) == ["clerk begins as clerk"]


async def test_a_new_run_starts_with_its_own_agent_after_a_hand_off() -> None:
    run = a_team(turn("Done."))
    run.system.thread_state = at_work(BOSS, "v1")
    await run.start()
    assert end_of(run) == NaturalEnd()
    assert run.rows.thread_state == at_work(SPEC.id, run.agent.spec.version)


async def test_a_request_of_an_older_release_is_found_in_the_thread() -> None:
    run = a_team(turn("Done."))
    await run.create(run_state={"revision": 1, "extensions": {}})
    run.system.thread_state = at_work(BOSS, None)
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert notes(run) == ["clerk ends", "boss begins as boss"]


async def test_a_refused_request_of_an_older_release_is_undone() -> None:
    run = a_team(turn("Done."))
    run.others[BOSS] = UnknownAgentVersion("no such agent")
    await run.create(run_state={"revision": 1, "extensions": {}})
    run.system.thread_state = at_work(BOSS, None)
    await run.execute()
    assert end_of(run) == Blocked("handoff resolve failed: no such agent")
    assert run.rows.thread_state == at_work(SPEC.id, run.agent.spec.version)


def test_the_newest_hand_off_request_counts() -> None:
    assert handoff_change(BOSS) == Change(REQUESTED_AGENT, BOSS)
