"""Hooks of ended runs: only what they change is written."""

from typing import Any

import pytest

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId
from app.domain.runs.limits import USED
from app.domain.runs.runs import LIFECYCLE, Usage
from app.llm.scripted.model import ScriptedModel, turn
from app.runtime.agent import ResolvedAgent
from app.runtime.ended.ended_run import EndedRun
from app.runtime.plugins import Plugin, PluginSet
from app.runtime.state import Change, ChangeBatch, StateKey, StateScope, UpdateRejected
from tests.support.records import a_record

OWN = {LIFECYCLE: {"active_ms": 2000, "status": "done"}, USED: {"tool_calls": 1}}


def _only_words(_: Any, update: Any) -> Any:
    if not isinstance(update, str):
        raise UpdateRejected("words only")
    return update


NOTE: StateKey[Any, Any] = StateKey("test.note", lambda: None, apply=_only_words)
TITLE: StateKey[Any, Any] = StateKey("test.title", lambda: None, scope=StateScope.THREAD)


def an_ended_run(
    extensions: dict[str, Any] | None, thread_state: dict[str, Any] | None = None
) -> EndedRun:
    state = None if extensions is None else {"revision": 5, "extensions": extensions}
    agent = ResolvedAgent(
        spec=AgentSpec(id=AgentId("clerk")),
        model=ScriptedModel("scripted", lambda _: turn("Done.")),
        tools={},
        plugins=PluginSet([Plugin(name="notes", keys=(NOTE, TITLE))]),
    )
    record = a_record(run_state=state, steps=3, usage=Usage(1, 2))
    return EndedRun(
        record=record,
        agent=agent,
        log=(),
        thread_state=thread_state or {},
        rules=None,  # type: ignore[arg-type]  # not asked here
    )


@pytest.mark.parametrize("extensions", [None, {}, OWN, {**OWN, "test.note": "old", "else": 1}])
def test_nothing_is_written_when_nothing_was_changed(extensions: dict[str, Any] | None) -> None:
    run = an_ended_run(extensions, {"test.title": "A", "else": 2})
    assert run.changed_run_state is None
    assert run.changed_thread_state is None


def test_a_change_of_the_run_state_is_written_with_the_unchanged_keys() -> None:
    run = an_ended_run({**OWN, "else": 1})
    run.change_state(ChangeBatch([Change(NOTE, "new")]))
    assert run.changed_run_state == {
        "revision": 6,
        "extensions": {**OWN, "else": 1, "test.note": "new"},
    }
    assert run.changed_thread_state is None


def test_a_change_of_the_thread_state_leaves_the_run_state_unwritten() -> None:
    run = an_ended_run(OWN, {"else": 2})
    run.change_state(ChangeBatch([Change(TITLE, "B")]))
    assert run.changed_run_state is None
    assert run.changed_thread_state == {"else": 2, "test.title": "B"}


def test_a_rejected_change_is_not_written() -> None:
    run = an_ended_run(OWN)
    run.change_state(ChangeBatch([Change(NOTE, 5)]))
    state = run.changed_run_state
    assert state is None or state["extensions"].get("test.note") is None


def test_a_hook_sees_what_the_run_has_used() -> None:
    run = an_ended_run(OWN)
    assert (run.steps, run.usage, run.active_seconds) == (3, Usage(1, 2), 2.0)
