"""Cancellation: wherever it comes, the run is done and its thread takes the next message."""

from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import ScriptedTurn, turn
from tests.conformance.acting import Story, a_call, end, events, lifecycle, play, texts, types
from tests.support.playing import Happening, Kind
from tests.support.thread_rows import Rows


async def _points_before(event_type: str, *turns: ScriptedTurn) -> int:
    """The first point at which the run has said something of that type."""
    for at in range(1, 100):
        story = Story()
        rows = await story.told(*turns, happenings=[Happening(at, Kind.KILL)])
        if event_type in types(rows):
            return at
    raise AssertionError(f"no {event_type}")


def cancelled(*turns: ScriptedTurn, once: str, hangs: bool = False) -> tuple[Story, Rows]:
    """A run that is cancelled once it has said this."""

    async def told() -> tuple[Story, Rows]:
        at = await _points_before(once, *turns)
        story = Story()
        await story.told(*turns, happenings=[Happening(at, Kind.CANCEL, hangs=hangs)])
        return story, story.rows

    return play(told())


def assert_cancelled(rows: Rows) -> None:
    state = rows.record.state
    assert isinstance(state, Done)
    assert state.termination == Cancelled("unwanted")
    assert end(rows)["termination"] == {"type": "cancelled", "detail": "unwanted"}
    assert end(rows)["result"]["status"] == "done"


def test_cancel_before_inference_terminates_immediately() -> None:
    """The other said no `run_finish` when it was cancelled that early."""
    story, rows = cancelled(turn("never said"), once="run_start")
    assert_cancelled(rows)
    assert story.requests == []
    assert texts(rows) == [("user", "go")]


def test_cancel_during_streaming_terminates_run() -> None:
    """The other threw the half of the answer away; here the log keeps what people have seen."""
    story, rows = cancelled(turn("One two three"), turn("never said"), once="step_start")
    assert_cancelled(rows)
    assert len(story.requests) <= 1
    assert rows.record.steps == len(events(rows, "step_end"))


def test_cancel_during_tool_execution() -> None:
    turns = (turn(a_call(id="c1"), a_call(id="c2")), turn("never said"))
    story, rows = cancelled(*turns, once="inference_complete", hangs=True)
    assert_cancelled(rows)
    assert texts(rows)[-1] == ("tool", INTERRUPTED)
    assert len(story.requests) == 1
    assert {one["id"] for one in events(rows, "tool_call_done")} == {"c1", "c2"}


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
    """The other's run stayed `waiting` for ever."""

    async def told() -> Rows:
        story = Story()
        await story.told(turn(a_call("gated")))
        await story.cancel()
        return await story.house.rows()

    rows = play(told())
    assert_cancelled(rows)
    assert texts(rows)[-1] == ("tool", INTERRUPTED)
    assert not rows.open_tickets


def test_the_thread_takes_the_next_message_after_a_cancel() -> None:
    async def told() -> Rows:
        story = Story()
        await story.told(turn(a_call("gated")))
        await story.cancel()
        return await story.told(turn("Hello again!"))

    rows = play(told())
    assert end(rows)["result"]["response"] == "Hello again!"
