"""Ends are the same everywhere: a run that is cancelled while it waits looks like one cancelled at work."""

from collections.abc import Awaitable, Callable

import pytest

from app.domain.runs.runs import LIFECYCLE, Done
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import turn
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

SPOKEN = turn("Let me see.", a_call("gated", "c1"), a_call("asking", "c2"))
HELD = turn("Let me see.", a_call("echo", "c1"), a_call("echo", "c2"))


async def cancelled_while_executing() -> Rows:
    """Cancelled while its tools run."""
    for point in range(1, 40):
        incident = Incident(point, IncidentKind.CANCEL, hangs=True)
        rows = await ScriptedRun().run_turns(HELD, turn("never said"), incidents=[incident])
        if events(rows, "tool_call_ready") and events(rows, "inference_complete"):
            return rows
    raise AssertionError("never cancelled at work")


async def cancelled_while_waiting() -> Rows:
    """Cancelled by a command while a ticket is open."""
    scripted = ScriptedRun()
    await scripted.run_turns(SPOKEN)
    await scripted.cancel()
    return await scripted.system.rows()


async def cancelled_after_a_decision() -> Rows:
    """Cancelled by a command after a decision and before its worker."""
    scripted = ScriptedRun()
    await scripted.run_turns(SPOKEN)
    [ticket] = [one for one in scripted.rows.open_tickets if one.call_id == "c1"]
    await scripted.system.decide(ticket, DecisionAnswer(action=Action.APPROVE))
    await scripted.cancel()
    return await scripted.system.rows()


async def cancelled_before_its_claim() -> Rows:
    """Cancelled by a command while no worker has claimed it."""
    scripted = ScriptedRun()
    await scripted.start([turn("never said")], here=False)
    await scripted.cancel()
    return await scripted.system.rows()


Way = Callable[[], Awaitable[Rows]]
AFTER_WORDS = pytest.mark.parametrize(
    "way", [cancelled_while_executing, cancelled_while_waiting, cancelled_after_a_decision]
)
EVERYWHERE = pytest.mark.parametrize(
    "way",
    [
        cancelled_while_executing,
        cancelled_while_waiting,
        cancelled_after_a_decision,
        cancelled_before_its_claim,
    ],
)


async def _rows(way: Way) -> Rows:
    return await way()


@AFTER_WORDS
def test_response_and_output_are_the_last_text_of_the_assistant(way: Way) -> None:
    rows = run_async(_rows(way))
    assert isinstance(rows.record.state, Done)
    assert rows.record.state.final_output == "Let me see."
    assert end(rows)["result"]["response"] == "Let me see."


def test_a_run_without_text_has_no_output() -> None:
    rows = run_async(cancelled_before_its_claim())
    assert isinstance(rows.record.state, Done)
    assert rows.record.state.final_output is None
    assert end(rows)["result"]["response"] == ""


@EVERYWHERE
def test_the_state_snapshot_comes_right_before_run_finish(way: Way) -> None:
    assert types(run_async(_rows(way)))[-2:] == ["state_snapshot", "run_finish"]


@EVERYWHERE
def test_the_lifecycle_is_done_in_the_snapshot_and_in_the_record(way: Way) -> None:
    rows = run_async(_rows(way))
    shown = lifecycle(events(rows, "state_snapshot")[-1])
    assert (shown["status"], shown["status_reason"]) == ("done", "cancelled")
    assert rows.record.run_state is not None
    assert rows.record.run_state["extensions"][LIFECYCLE] == shown


@AFTER_WORDS
def test_each_open_call_is_reported_before_run_finish(way: Way) -> None:
    rows = run_async(_rows(way))
    ended = [
        event for event in events(rows, "tool_call_done") if event["result"]["status"] == "done"
    ]
    assert [(event["tool_call_id"], event["result"]["outcome"]) for event in ended] == [
        ("c1", "failed"),
        ("c2", "failed"),
    ]
    assert {event["result"]["text"] for event in ended} == {INTERRUPTED}
    by_id = {entry.message.id: entry.message.tool_call_id for entry in rows.log}
    assert [by_id[event["message_id"]] for event in ended] == ["c1", "c2"]
    assert texts(rows)[-2:] == [("tool", INTERRUPTED)] * 2


@EVERYWHERE
def test_the_end_has_one_shape(way: Way) -> None:
    finish = end(run_async(_rows(way)))
    assert (finish["status"], finish["outcome"]) == ("done", "cancelled")
    assert finish["termination"]["type"] == "cancelled"
    assert finish["result"].keys() == {"response"}
