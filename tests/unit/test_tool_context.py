"""Events that a running tool can emit, in the form that clients know."""

from typing import Any

import pytest

from app.domain.errors import FileNotSaved, StateError
from app.domain.events.agent_events import AgentEvent
from app.domain.events.event_sizes import MAX_DELTA_BYTES
from app.domain.events.tool_call_events import ActivityDelta, ActivitySnapshot, ToolCallStreamDelta
from app.domain.ids import CallId, RunId
from app.domain.runs.run_info import RunInfo, run_info
from app.domain.runs.runs import Lineage
from app.domain.tools.tool_calls import SuspensionRequest
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tool_files import checked_name
from app.runtime.state import Change, StateKey, StateView
from tests.support.records import a_record


def context(
    emitted: list[AgentEvent], run: RunInfo = run_info(a_record()), **more: Any
) -> ToolContext:
    return ToolContext(
        run=run,
        call_id=CallId("call"),
        tool_name="fetch",
        idempotency_key="run:1:call",
        emit=emitted.append,
        **more,
    )


def test_streamed_output_names_its_call() -> None:
    emitted: list[AgentEvent] = []
    context(emitted).stream_output("half")
    context(emitted).stream_output("")
    assert emitted == [ToolCallStreamDelta("call", "fetch", "half")]


def test_long_output_is_split_into_deltas_of_bounded_size() -> None:
    emitted: list[AgentEvent] = []
    context(emitted).stream_output("x" * (MAX_DELTA_BYTES + 1))
    assert [len(event.delta) for event in emitted if isinstance(event, ToolCallStreamDelta)] == [
        MAX_DELTA_BYTES,
        1,
    ]


def test_an_activity_replaces_the_previous_one() -> None:
    emitted: list[AgentEvent] = []
    context(emitted).activity("plan", {"steps": [1]})
    assert emitted == [ActivitySnapshot("call", "plan", {"steps": [1]}, True)]


def test_an_activity_is_copied_when_it_is_emitted() -> None:
    emitted: list[AgentEvent] = []
    steps = ["one"]
    context(emitted).activity("plan", steps)
    steps.append("two")
    assert emitted == [ActivitySnapshot("call", "plan", ["one"], True)]


@pytest.mark.parametrize("content", [object(), float("nan"), {"a": {1, 2}}])
def test_an_activity_that_is_not_json_fails_in_the_tool(content: Any) -> None:
    emitted: list[AgentEvent] = []
    with pytest.raises((TypeError, ValueError)):
        context(emitted).activity("plan", content)
    assert emitted == []


@pytest.mark.parametrize("patch", [{"op": "add"}, [{"op": "add"}]])
def test_an_activity_delta_is_a_list_of_operations(patch: Any) -> None:
    emitted: list[AgentEvent] = []
    context(emitted).activity_delta("plan", patch)
    assert emitted == [ActivityDelta("call", "plan", [{"op": "add"}])]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_a_change_that_is_not_json_fails_in_the_tool(value: Any) -> None:
    emitted: list[AgentEvent] = []
    changes: list[Change] = []
    key: StateKey[Any, Any] = StateKey("any", lambda: None)
    with pytest.raises((TypeError, ValueError)):
        context([], change=changes.append).update(key, value)
    with pytest.raises((TypeError, ValueError)):
        context(emitted).activity_delta("plan", {"op": "add", "value": value})
    assert (changes, emitted) == ([], [])


def test_a_tool_sees_the_state_from_the_start_of_its_call() -> None:
    key: StateKey[int, int] = StateKey("count", lambda: 7)
    changes: list[Change] = []
    ours = context([], snapshot=StateView(3, {"count": 5}), change=changes.append)
    ours.update(key, 6)
    assert ours.state(key) == 5
    assert context([]).state(key) == 7
    assert changes == [Change(key, 6)]


def test_an_update_is_copied_when_it_is_requested() -> None:
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
    emitted: list[AgentEvent] = []
    context(emitted).progress(0.4, "reading", loaded=4, total=10)
    assert emitted == [
        ActivitySnapshot(
            "call",
            "tool-call-progress",
            {
                "schema": "tool-call-progress.v1",
                "node_id": "tool_call:call",
                "parent_node_id": "run:run",
                "tool_call_id": "call",
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
    emitted: list[AgentEvent] = []
    below = Lineage(RunId("root"), parent_run_id=RunId("above"), parent_call_id="asking", depth=1)
    child = context(emitted, run=run_info(a_record(lineage=below)))
    child.progress(status="done")
    [event] = emitted
    assert isinstance(event, ActivitySnapshot)
    assert isinstance(event.content, dict)
    assert event.content["parent_node_id"] == "tool_call:asking"
    assert event.content["parent_run_id"] == "above"
    assert event.content["parent_tool_call_id"] == "asking"
    assert "progress" not in event.content


@pytest.mark.parametrize(("given", "shown"), [(-1.0, 0.0), (0.5, 0.5), (7.0, 1.0)])
def test_progress_is_clamped_between_0_and_1(given: float, shown: float) -> None:
    emitted: list[AgentEvent] = []
    context(emitted).progress(given)
    [event] = emitted
    assert isinstance(event, ActivitySnapshot)
    assert isinstance(event.content, dict)
    assert event.content["progress"] == shown


def test_a_suspension_request_is_a_value() -> None:
    request = context([]).suspend("Sure?", action="confirm", response_schema={"type": "string"})
    assert request == SuspensionRequest(
        "Sure?", action="confirm", response_schema={"type": "string"}
    )


def test_the_metadata_of_the_run_is_a_copy() -> None:
    record = a_record(metadata={"customer": {"id": 7}})
    run_info(record).metadata["customer"]["id"] = 8
    assert record.metadata == {"customer": {"id": 7}}


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_reconciler_can_neither_save_nor_open_files() -> None:
    for attempt in (context([]).save_file("a.txt", b"a"), context([]).open_file("a")):
        with pytest.raises(FileNotSaved, match="only while the tool runs"):
            await attempt


@pytest.mark.parametrize("name", ["", "a" * 201, "two\nlines", "\0", "\ud800"])
def test_a_file_name_that_cant_be_stored_or_shown_is_refused(name: str) -> None:
    with pytest.raises(FileNotSaved, match="printable"):
        checked_name(name)


@pytest.mark.parametrize("name", ["report.pdf", "Umsätze 2026.csv", "a" * 200])
def test_other_file_names_are_kept(name: str) -> None:
    assert checked_name(name) == name
