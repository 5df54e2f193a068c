"""What a tool can say while it runs, in the shape that clients know."""

from typing import Any

import pytest

from app.domain.errors import StateError
from app.domain.events.event_sizes import MAX_DELTA_BYTES
from app.domain.events.run_events import (
    ActivityDelta,
    ActivitySnapshot,
    AgentEvent,
    ToolCallStreamDelta,
)
from app.domain.ids import CallId, RunId, ThreadId
from app.domain.tools.tool_calls import SuspensionRequest
from app.runtime.ports import ToolContext
from app.runtime.state import Change, StateKey, StateView


def context(said: list[AgentEvent], **more: Any) -> ToolContext:
    return ToolContext(
        run_id=RunId("run"),
        thread_id=ThreadId("thread"),
        call_id=CallId("call"),
        tool_name="fetch",
        idempotency_key="run:1:call",
        emit=said.append,
        **more,
    )


def test_streamed_output_names_its_call() -> None:
    said: list[AgentEvent] = []
    context(said).stream_output("half")
    context(said).stream_output("")
    assert said == [ToolCallStreamDelta("call", "fetch", "half")]


def test_output_of_any_length_comes_in_pieces_that_a_client_can_hold() -> None:
    said: list[AgentEvent] = []
    context(said).stream_output("x" * (MAX_DELTA_BYTES + 1))
    assert [len(event.delta) for event in said if isinstance(event, ToolCallStreamDelta)] == [
        MAX_DELTA_BYTES,
        1,
    ]


def test_an_activity_replaces_the_one_before() -> None:
    said: list[AgentEvent] = []
    context(said).activity("plan", {"steps": [1]})
    assert said == [ActivitySnapshot("call", "plan", {"steps": [1]}, True)]


def test_an_activity_is_what_it_was_when_it_was_said() -> None:
    said: list[AgentEvent] = []
    steps = ["one"]
    context(said).activity("plan", steps)
    steps.append("two")
    assert said == [ActivitySnapshot("call", "plan", ["one"], True)]


@pytest.mark.parametrize("content", [object(), float("nan"), {"a": {1, 2}}])
def test_an_activity_that_is_not_json_fails_in_the_tool(content: Any) -> None:
    said: list[AgentEvent] = []
    with pytest.raises((TypeError, ValueError)):
        context(said).activity("plan", content)
    assert said == []


@pytest.mark.parametrize("patch", [{"op": "add"}, [{"op": "add"}]])
def test_what_changed_of_an_activity_is_a_list_of_operations(patch: Any) -> None:
    said: list[AgentEvent] = []
    context(said).activity_delta("plan", patch)
    assert said == [ActivityDelta("call", "plan", [{"op": "add"}])]


def test_state_is_what_it_was_when_the_call_began() -> None:
    key: StateKey[int, int] = StateKey("count", lambda: 7)
    changes: list[Change] = []
    ours = context([], snapshot=StateView(3, {"count": 5}), change=changes.append)
    ours.update(key, 6)
    assert ours.state(key) == 5
    assert context([]).state(key) == 7
    assert changes == [Change(key, 6)]


def test_an_update_is_what_it_was_when_it_was_asked_for() -> None:
    key: StateKey[list[str], list[str]] = StateKey("words", list)
    changes: list[Change] = []
    words = ["one"]
    context([], change=changes.append).update(key, words)
    words.append("two")
    assert changes[0].update == ["one"]


def test_without_a_run_there_is_no_state_to_change() -> None:
    key: StateKey[int, int] = StateKey("count", lambda: 0)
    with pytest.raises(StateError):
        context([]).update(key, 1)


def test_progress_has_the_known_payload() -> None:
    said: list[AgentEvent] = []
    context(said).progress(0.4, "reading", loaded=4, total=10)
    assert said == [
        ActivitySnapshot(
            "call",
            "tool-call-progress",
            {
                "schema": "tool-call-progress.v1",
                "node_id": "tool_call:call",
                "parent_node_id": "run:run",
                "call_id": "call",
                "tool_name": "fetch",
                "status": "running",
                "run_id": "run",
                "thread_id": "thread",
                "progress": 0.4,
                "loaded": 4,
                "total": 10,
                "message": "reading",
            },
            True,
        )
    ]


def test_progress_of_a_child_run_hangs_under_its_parents_call() -> None:
    said: list[AgentEvent] = []
    child = context(said, parent_run_id=RunId("above"), parent_call_id=CallId("asking"))
    child.progress(status="done")
    [event] = said
    assert isinstance(event, ActivitySnapshot)
    assert isinstance(event.content, dict)
    assert event.content["parent_node_id"] == "tool_call:asking"
    assert event.content["parent_run_id"] == "above"
    assert event.content["parent_call_id"] == "asking"
    assert "progress" not in event.content


@pytest.mark.parametrize(("given", "shown"), [(-1.0, 0.0), (0.5, 0.5), (7.0, 1.0)])
def test_progress_stays_between_nothing_and_all(given: float, shown: float) -> None:
    said: list[AgentEvent] = []
    context(said).progress(given)
    [event] = said
    assert isinstance(event, ActivitySnapshot)
    assert isinstance(event.content, dict)
    assert event.content["progress"] == shown


def test_a_wish_to_suspend_is_a_value() -> None:
    request = context([]).suspend("Sure?", action="confirm", response_schema={"type": "string"})
    assert request == SuspensionRequest(
        "Sure?", action="confirm", response_schema={"type": "string"}
    )
