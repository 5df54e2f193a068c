"""Ends are the same everywhere: a run that is cancelled while it waits looks like one cancelled at work."""

from collections.abc import Awaitable, Callable

import pytest

from app.domain.runs.runs import LIFECYCLE, Done
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import turn
from tests.conformance.acting import Story, a_call, end, events, lifecycle, play, texts, types
from tests.support.playing import Happening, Kind
from tests.support.thread_rows import Rows

SPOKEN = turn("Let me see.", a_call("gated", "c1"), a_call("asking", "c2"))
HELD = turn("Let me see.", a_call("echo", "c1"), a_call("echo", "c2"))


async def at_work() -> Rows:
    """Cancelled while its tools run."""
    for point in range(1, 40):
        happening = Happening(point, Kind.CANCEL, hangs=True)
        rows = await Story().told(HELD, turn("never said"), happenings=[happening])
        if events(rows, "tool_call_ready") and events(rows, "inference_complete"):
            return rows
    raise AssertionError("never cancelled at work")


async def while_it_waits() -> Rows:
    """Cancelled by a command while a person is asked."""
    story = Story()
    await story.told(SPOKEN)
    await story.cancel()
    return await story.house.rows()


async def when_its_answer_was_not_applied() -> Rows:
    """Cancelled by a command between an answer and the worker that would use it."""
    story = Story()
    await story.told(SPOKEN)
    [ticket] = [one for one in story.rows.open_tickets if one.call_id == "c1"]
    await story.house.decide(ticket, DecisionAnswer(action=Action.APPROVE))
    await story.cancel()
    return await story.house.rows()


async def before_it_was_begun() -> Rows:
    """Cancelled by a command while no worker has claimed it."""
    story = Story()
    await story.start([turn("never said")], here=False)
    await story.cancel()
    return await story.house.rows()


Way = Callable[[], Awaitable[Rows]]
AFTER_WORDS = pytest.mark.parametrize(
    "way", [at_work, while_it_waits, when_its_answer_was_not_applied]
)
EVERYWHERE = pytest.mark.parametrize(
    "way", [at_work, while_it_waits, when_its_answer_was_not_applied, before_it_was_begun]
)


async def _rows(way: Way) -> Rows:
    return await way()


@AFTER_WORDS
def test_response_and_output_are_what_the_assistant_said_last(way: Way) -> None:
    rows = play(_rows(way))
    assert isinstance(rows.record.state, Done)
    assert rows.record.state.final_output == "Let me see."
    assert end(rows)["result"]["response"] == "Let me see."


def test_a_run_that_has_said_nothing_has_no_output() -> None:
    rows = play(before_it_was_begun())
    assert isinstance(rows.record.state, Done)
    assert rows.record.state.final_output is None
    assert end(rows)["result"]["response"] == ""


@EVERYWHERE
def test_the_state_stands_right_before_run_finish(way: Way) -> None:
    assert types(play(_rows(way)))[-2:] == ["state_snapshot", "run_finish"]


@EVERYWHERE
def test_the_lifecycle_says_done_in_the_snapshot_and_in_the_record(way: Way) -> None:
    rows = play(_rows(way))
    shown = lifecycle(events(rows, "state_snapshot")[-1])
    assert (shown["status"], shown["status_reason"]) == ("done", "cancelled")
    assert rows.record.run_state is not None
    assert rows.record.run_state["extensions"][LIFECYCLE] == shown


@AFTER_WORDS
def test_each_open_call_is_reported_before_run_finish(way: Way) -> None:
    rows = play(_rows(way))
    ended = [event for event in events(rows, "tool_call_done") if event["outcome"] != "suspended"]
    assert [(event["id"], event["outcome"]) for event in ended] == [
        ("c1", "failed"),
        ("c2", "failed"),
    ]
    assert {event["result"]["message"] for event in ended} == {INTERRUPTED}
    by_id = {entry.message.id: entry.message.tool_call_id for entry in rows.log}
    assert [by_id[event["message_id"]] for event in ended] == ["c1", "c2"]
    assert texts(rows)[-2:] == [("tool", INTERRUPTED)] * 2


@EVERYWHERE
def test_the_result_has_one_shape(way: Way) -> None:
    result = end(play(_rows(way)))["result"]
    assert {key: result[key] for key in result if key != "response"} == {
        "status": "done",
        "status_reason": "cancelled",
    }
    assert "response" in result
