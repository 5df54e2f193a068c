"""Cancellation at any point: the run is done and its thread takes the next message."""

from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import ScriptedTurn, turn
from tests.conformance.scripted_runs import (
    ScriptedRun,
    a_call,
    end,
    events,
    lifecycle,
    run_async,
    texts,
    types,
)
from tests.support.thread_driver import Incident, IncidentKind
from tests.support.thread_rows import Rows


async def _points_before(event_type: str, *turns: ScriptedTurn) -> int:
    """The first point after an event of that type."""
    for at in range(1, 100):
        scripted = ScriptedRun()
        rows = await scripted.run_turns(*turns, incidents=[Incident(at, IncidentKind.KILL)])
        if event_type in types(rows):
            return at
    raise AssertionError(f"no {event_type}")


def cancelled(*turns: ScriptedTurn, once: str, hangs: bool = False) -> tuple[ScriptedRun, Rows]:
    """A run that is cancelled after its first event of that type."""

    async def scenario() -> tuple[ScriptedRun, Rows]:
        at = await _points_before(once, *turns)
        scripted = ScriptedRun()
        await scripted.run_turns(*turns, incidents=[Incident(at, IncidentKind.CANCEL, hangs=hangs)])
        return scripted, scripted.rows

    return run_async(scenario())


def assert_cancelled(rows: Rows) -> None:
    state = rows.record.state
    assert isinstance(state, Done)
    assert state.termination == Cancelled("unwanted")
    assert end(rows)["termination"] == {"type": "cancelled", "detail": "unwanted"}
    assert (end(rows)["status"], end(rows)["outcome"]) == ("done", "cancelled")


def test_cancel_before_inference_terminates_immediately() -> None:
    """The reference emits no `run_finish` for such an early cancel."""
    scripted, rows = cancelled(turn("never said"), once="run_start")
    assert_cancelled(rows)
    assert scripted.requests == []
    assert texts(rows) == [("user", "go")]


def test_cancel_during_streaming_terminates_run() -> None:
    """The reference discards the partial answer; Holdfast keeps the text that clients have seen."""
    scripted, rows = cancelled(turn("One two three"), turn("never said"), once="step_start")
    assert_cancelled(rows)
    assert len(scripted.requests) <= 1
    assert rows.record.steps == len(events(rows, "step_end"))


def test_cancel_during_tool_execution() -> None:
    turns = (turn(a_call(id="c1"), a_call(id="c2")), turn("never said"))
    scripted, rows = cancelled(*turns, once="inference_complete", hangs=True)
    assert_cancelled(rows)
    assert texts(rows)[-1] == ("tool", INTERRUPTED)
    assert len(scripted.requests) == 1
    assert {one["tool_call_id"] for one in events(rows, "tool_call_done")} == {"c1", "c2"}


def test_lifecycle_transitions_running_to_done_on_cancel() -> None:
    _, rows = cancelled(turn(a_call()), turn("never said"), once="tool_call_done")
    found = [lifecycle(one) for one in events(rows, "state_snapshot")]
    assert found[-1]["status"] == "done"
    assert found[-1]["status_reason"] == "cancelled"
    assert {one["status"] for one in found[:-1]} <= {"running"}


def test_hanging_executor_is_caught_by_cancellation_token() -> None:
    _, rows = cancelled(turn("One two three"), once="step_start", hangs=True)
    assert_cancelled(rows)


def test_cancellation_returns_end_turn_and_drops_tool_calls() -> None:
    _, rows = cancelled(
        turn("Let me see.", a_call()), turn("never said"), once="tool_call_start", hangs=True
    )
    assert_cancelled(rows)
    assert "tool_call_ready" not in types(rows)
    assert all(not entry.message.tool_calls for entry in rows.log)


def test_cancel_while_suspended_is_done() -> None:
    """In the reference the run stays `waiting` for ever."""

    async def scenario() -> Rows:
        scripted = ScriptedRun()
        await scripted.run_turns(turn(a_call("gated")))
        await scripted.cancel()
        return await scripted.system.rows()

    rows = run_async(scenario())
    assert_cancelled(rows)
    assert texts(rows)[-1] == ("tool", INTERRUPTED)
    assert not rows.open_tickets


def test_the_thread_takes_the_next_message_after_a_cancel() -> None:
    async def scenario() -> Rows:
        scripted = ScriptedRun()
        await scripted.run_turns(turn(a_call("gated")))
        await scripted.cancel()
        return await scripted.run_turns(turn("Hello again!"))

    rows = run_async(scenario())
    assert end(rows)["result"]["response"] == "Hello again!"
