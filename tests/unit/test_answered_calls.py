"""Decided calls: each gets the result of its decision, and clients see `tool_call_resumed`."""

from typing import Any

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.ids import CallId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd
from app.domain.structs import replace
from app.domain.tickets.decisions import EXPIRED, Action, DecisionAnswer
from app.domain.tickets.tickets import TicketStatus
from app.llm.scripted.model import Call, turn
from tests.support.plain_runs import PlainRun
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


async def asking(probe: Probe, mode: ToolExecution = ToolExecution.SEQUENTIAL) -> PlainRun:
    """A run that waits for a decision about its first call; the tool suspends once."""
    probe.asks = 1
    run = PlainRun(
        turn(probe.call("c1", "first")), turn("Done."), tools=[probe.tool], tool_execution=mode
    )
    await run.start()
    return run


def end_of(run: PlainRun) -> object:
    state = run.rows.record.state
    assert isinstance(state, Done)
    return state.termination


def last_result(run: PlainRun) -> str:
    return [text for role, text in run.texts if role == "tool"][-1]


@pytest.mark.parametrize(
    "action, more, result, times",
    [
        (Action.APPROVE, {}, "probe did first", 2),
        (Action.EDIT, {"arguments": {"text": "other"}}, "probe did other", 2),
        (Action.RESPOND, {"result": {"a": 1}}, '{"a":1}', 1),
        (Action.RESPOND, {"result": {"error": "no"}}, "no", 1),
        (Action.REJECT, {"reason": "not now"}, "Denied: not now", 1),
        (Action.CANCEL, {"reason": "never"}, "never", 1),
        (Action.CANCEL, {"result": {"a": 1}, "reason": "never"}, '{"a":1}', 1),
    ],
)
@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_decision_gives_the_call_its_result(
    mode: ToolExecution, action: Action, more: dict[str, Any], result: str, times: int
) -> None:
    probe = Probe()
    run = await asking(probe, mode)
    await run.answer(action, **more)
    assert end_of(run) == NaturalEnd()
    assert last_result(run) == result
    assert len(probe.handed) == times
    assert [event["tool_call_id"] for event in run.events("tool_call_resumed")] == ["c1"]
    assert [event["result"]["status"] for event in run.events("tool_call_done")] == ["waiting"]
    [ticket] = run.rows.tickets
    assert ticket.applied_at is not None


async def test_an_expired_ticket_is_an_error_of_its_call() -> None:
    probe = Probe()
    run = await asking(probe)
    [ticket] = run.rows.open_tickets
    run.system.tickets[ticket.id] = replace(ticket, status=TicketStatus.EXPIRED)
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert last_result(run) == EXPIRED
    assert [event["tool_call_id"] for event in run.events("tool_call_resumed")] == ["c1"]
    assert len(probe.handed) == 1


async def test_a_tool_gets_the_decision_and_its_ticket() -> None:
    probe = Probe()
    run = await asking(probe)
    await run.answer(Action.APPROVE, result={"go": True})
    assert [one.resume_input for one in probe.handed] == [None, {"go": True}]


async def test_cancelled_calls_resume_first_and_the_others_by_their_ids() -> None:
    probe = Probe(asks=3)
    run = PlainRun(
        turn(*(probe.call(id) for id in ("c1", "c2", "c3"))),
        turn("Done."),
        tools=[probe.tool],
        tool_execution=ToolExecution.PARALLEL,
    )
    await run.start()
    by_call = {ticket.call_id: ticket for ticket in run.rows.open_tickets}
    await run.system.decide(by_call[CallId("c2")], _answer(Action.RESPOND))
    await run.system.decide(by_call[CallId("c1")], _answer(Action.RESPOND))
    await run.system.decide(by_call[CallId("c3")], _answer(Action.CANCEL))
    await run.execute()
    assert end_of(run) == NaturalEnd()
    resumed = [event["tool_call_id"] for event in run.events("tool_call_resumed")]
    assert resumed == ["c3", "c1", "c2"]


def _answer(action: Action) -> Any:
    return DecisionAnswer(action=action, result="x", reason="y")


@pytest.mark.parametrize("mode", list(ToolExecution))
@pytest.mark.parametrize("arguments, stored_arguments", [({"text": "a"}, {"text": "a"}), ({}, {})])
async def test_a_call_in_the_background_begins_as_a_task(
    mode: ToolExecution, arguments: dict[str, Any], stored_arguments: dict[str, Any]
) -> None:
    probe = Probe(effect="read")
    run = PlainRun(
        turn(Call(tool="probe", arguments=arguments, id=CallId("c1"))),
        turn("Done."),
        tools=[probe.tool],
        background=("probe",),
        tool_execution=mode,
    )
    await run.start()
    assert end_of(run) == NaturalEnd()
    [task] = run.system.begun
    assert (task.tool_name, task.call_id, task.child) == ("probe", "c1", None)
    assert task.arguments == stored_arguments
    assert task.id.startswith("bg_")
    assert not probe.handed
    assert last_result(run) == f'{{"task_id":"{task.id}","status":"running"}}'
