"""Runs that reach a limit end, or ask a person and continue after a raise."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.json_values import as_object
from app.domain.runs.limits import RAISED, USED, Limit
from app.domain.runs.runs import LIMIT_REACHED, Done, Waiting
from app.domain.runs.terminations import NaturalEnd, Stopped
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.limit_tickets import RAISE_BY
from app.domain.tickets.tickets import TicketKind
from app.llm.scripted.model import ScriptedTurn, turn
from app.runtime.plugins import Block, HookView, Phase, Request
from tests.support.hooks import Hooks
from tests.support.plain_runs import PlainRun
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

PROBE = Probe(effect="read")


def looping() -> list[ScriptedTurn]:
    """Two steps with a call each, and a last one."""
    return [turn("One.", PROBE.call("c1")), turn("Two.", PROBE.call("c2")), turn("Done.")]


async def limited(
    turns: list[ScriptedTurn],
    limits: dict[str, float],
    on_limit: str = "ask",
    *,
    probe: Probe = PROBE,
    lost_seconds: float = 0.0,
    **of_spec: Any,
) -> PlainRun:
    """Executes a run of these turns under these limits until it ends or suspends."""
    run = PlainRun(*turns, tools=[probe.tool], **of_spec)
    request = {"limits": limits, "on_limit": on_limit} if limits else {}
    await run.start(request=request, lost_seconds=lost_seconds)
    return run


def end_of(run: PlainRun) -> object:
    state = run.rows.record.state
    assert isinstance(state, Done)
    return state.termination


def waits_for_a_raise(run: PlainRun) -> bool:
    state = run.rows.record.state
    return isinstance(state, Waiting) and state.message == LIMIT_REACHED


def asked_about(run: PlainRun) -> dict[str, Any] | None:
    [ticket] = [one for one in run.rows.open_tickets if one.kind is TicketKind.LIMIT]
    return as_object(ticket.arguments)


def extension(run: PlainRun, name: str) -> object:
    assert run.rows.record.run_state is not None
    return run.rows.record.run_state["extensions"].get(name)


def results(run: PlainRun) -> list[tuple[str, str]]:
    """Each call that is over, with the status of its result."""
    return [
        (event["tool_call_id"], event["result"].get("outcome"))
        for event in run.events("tool_call_done")
    ]


@pytest.mark.parametrize(
    "limits, code, detail",
    [
        ({"steps": 1}, "limit_steps", "1 of 1 steps were used"),
        ({"steps": 2}, "limit_steps", "2 of 2 steps were used"),
        ({"tool_calls": 1}, "limit_tool_calls", "1 of 1 tool calls were used"),
    ],
)
async def test_a_run_at_its_limit_ends(limits: dict[str, float], code: str, detail: str) -> None:
    run = await limited(looping(), limits, "stop")
    assert end_of(run) == Stopped(code, detail)
    assert not run.rows.tickets


@pytest.mark.parametrize("on_limit", ["stop", "ask"])
@pytest.mark.parametrize(
    "limits", [{"steps": 3}, {"tool_calls": 2}, {"tokens": 10**9}, {"wall_seconds": 3600.0}, {}]
)
async def test_a_run_within_its_limits_ends_naturally(
    limits: dict[str, float], on_limit: str
) -> None:
    assert end_of(await limited(looping(), limits, on_limit)) == NaturalEnd()


@pytest.mark.parametrize(
    "action, more, by",
    [
        (Action.APPROVE, {}, 1),
        (Action.EDIT, {"arguments": {RAISE_BY: 2}}, 2),
        (Action.RESPOND, {"result": {RAISE_BY: 5}}, 5),
    ],
)
async def test_a_run_continues_after_a_raise(action: Action, more: dict[str, Any], by: int) -> None:
    run = await limited(looping(), {"steps": 1})
    assert waits_for_a_raise(run)
    assert asked_about(run) == {"limit": "steps", "allowed": 1, "used": 1, RAISE_BY: 1}
    await run.answer(action, **more)
    assert extension(run, RAISED) == {"steps": 1 + by}
    if by == 1:
        assert waits_for_a_raise(run)
        assert asked_about(run) == {"limit": "steps", "allowed": 2, "used": 2, RAISE_BY: 1}
    else:
        assert end_of(run) == NaturalEnd()


@pytest.mark.parametrize("action", [Action.REJECT, Action.CANCEL])
async def test_a_run_without_a_raise_ends_and_names_the_reason(action: Action) -> None:
    run = await limited(looping(), {"steps": 1})
    await run.answer(action, reason="too dear")
    why = "1 of 1 steps were used, and no more was granted: too dear"
    assert end_of(run) == Stopped("limit_steps", why)
    [ticket] = run.rows.tickets
    assert ticket.applied_at is not None


async def test_a_run_with_an_open_limit_ticket_keeps_waiting() -> None:
    run = await limited(looping(), {"steps": 1})
    await run.execute()
    assert waits_for_a_raise(run)
    assert len(run.requests) == 1
    assert asked_about(run) is not None


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_calls_over_the_limit_are_held_until_a_raise(mode: ToolExecution) -> None:
    probe = Probe(effect="read")
    calls = [probe.call(f"c{number}") for number in range(1, 5)]
    turns = [turn(*calls), turn("Done.")]
    run = await limited(turns, {"tool_calls": 2}, probe=probe, tool_execution=mode)
    assert waits_for_a_raise(run)
    assert asked_about(run) == {"limit": "tool_calls", "allowed": 2, "used": 2, RAISE_BY: 2}
    statuses = {state.call.id: state.status.value for state in run.rows.calls}
    assert statuses == {
        "c1": "succeeded",
        "c2": "succeeded",
        "c3": "suspended",
        "c4": "suspended",
    }
    await run.answer(Action.EDIT, arguments={RAISE_BY: 1})
    assert waits_for_a_raise(run)
    assert extension(run, USED) == {"tool_calls": 3}
    await run.answer(Action.APPROVE)
    assert end_of(run) == NaturalEnd()
    assert extension(run, USED) == {"tool_calls": 4}
    assert [one.call_id for one in probe.handed] == ["c1", "c2", "c3", "c4"]
    assert [event["tool_call_id"] for event in run.events("tool_call_resumed")] == ["c3", "c4"]
    assert len(run.requests) == 2


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_call_over_the_limit_ends_a_run_that_may_not_ask(mode: ToolExecution) -> None:
    probe = Probe(effect="read")
    calls = [probe.call(f"c{number}") for number in range(1, 5)]
    turns = [turn(*calls), turn("Done.")]
    run = await limited(turns, {"tool_calls": 2}, "stop", probe=probe, tool_execution=mode)
    assert end_of(run) == Stopped("limit_tool_calls", "2 of 2 tool calls were used")
    assert [one.call_id for one in probe.handed] == ["c1", "c2"]
    assert results(run) == [
        ("c1", "succeeded"),
        ("c2", "succeeded"),
        ("c3", "failed"),
        ("c4", "failed"),
    ]


async def test_a_held_call_that_a_plugin_blocks_after_the_raise_is_resumed_with_an_error() -> None:
    probe, raised = Probe(effect="read"), asyncio.Event()

    def blocks(_: HookView) -> Sequence[Request]:
        return [Block("not now")] if raised.is_set() else []

    hooks = Hooks({Phase.TOOL_GATE: blocks})
    run = PlainRun(
        turn(probe.call("c1"), probe.call("c2")), tools=[probe.tool], plugins=[hooks.plugin]
    )
    await run.start(request={"limits": {"tool_calls": 1}, "on_limit": "ask"})
    raised.set()
    await run.answer(Action.EDIT, arguments={RAISE_BY: 5})
    assert [event["tool_call_id"] for event in run.events("tool_call_resumed")] == ["c2"]
    assert [one.call_id for one in probe.handed] == ["c1"]


async def test_a_held_call_whose_worker_is_lost_after_the_raise_is_resumed() -> None:
    probe = Probe(effect="read")
    run = await limited([turn(probe.call("c1"), probe.call("c2"))], {"tool_calls": 1}, probe=probe)
    probe.held = True
    probe.reached.clear()
    [ticket] = run.rows.open_tickets
    answer = DecisionAnswer(action=Action.EDIT, arguments={RAISE_BY: 5})
    await run.system.decide(ticket, answer)
    await run.lose_worker(probe.reached)
    probe.open.set()
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert [one.call_id for one in probe.handed] == ["c1", "c2", "c2"]
    assert [event["tool_call_id"] for event in run.events("tool_call_resumed")] == ["c2"]


async def test_a_held_call_without_a_raise_is_interrupted() -> None:
    probe = Probe(effect="read")
    run = await limited([turn(probe.call("c1"), probe.call("c2"))], {"tool_calls": 1}, probe=probe)
    await run.answer(Action.REJECT)
    assert isinstance(end_of(run), Stopped)
    assert results(run) == [("c1", "succeeded"), ("c2", None), ("c2", "failed")]


async def test_other_decisions_wait_for_the_decision_about_the_limit() -> None:
    probe = Probe(effect="read", asks=1)
    turns = [turn(probe.call("c1"), probe.call("c2")), turn("Done.")]
    run = await limited(
        turns, {"tool_calls": 1}, probe=probe, tool_execution=ToolExecution.PARALLEL
    )
    kinds = {ticket.kind: ticket for ticket in run.rows.open_tickets}
    assert set(kinds) == {TicketKind.INPUT, TicketKind.LIMIT}
    await run.answer(Action.APPROVE, to=kinds[TicketKind.INPUT])
    assert waits_for_a_raise(run)
    assert [one.call_id for one in probe.handed] == ["c1"]
    await run.answer(Action.EDIT, to=kinds[TicketKind.LIMIT], arguments={RAISE_BY: 5})
    assert end_of(run) == NaturalEnd()
    assert sorted(one.call_id for one in probe.handed) == ["c1", "c1", "c2"]


@pytest.mark.parametrize("on_limit", ["stop", "ask"])
async def test_a_run_without_time_left_executes_nothing(on_limit: str) -> None:
    run = await limited(looping(), {"wall_seconds": 5}, on_limit, lost_seconds=6.0)
    assert not run.requests
    if on_limit == "ask":
        assert waits_for_a_raise(run)
        asked = asked_about(run)
        assert asked is not None
        assert (asked["limit"], asked["allowed"]) == (Limit.WALL_SECONDS.value, 5)
    else:
        end = end_of(run)
        assert isinstance(end, Stopped)
        assert end.code == "limit_wall_seconds"


@pytest.mark.parametrize("on_limit", ["stop", "ask"])
async def test_a_running_tool_is_interrupted_when_the_time_is_up(on_limit: str) -> None:
    probe = Probe(effect="read", held=True)
    run = await limited([turn(probe.call("c1"))], {"wall_seconds": 0.05}, on_limit, probe=probe)
    assert len(probe.handed) == 1
    if on_limit == "stop":
        end = end_of(run)
        assert isinstance(end, Stopped)
        assert end.code == "limit_wall_seconds"
        assert results(run) == [("c1", "failed")]
    else:
        assert waits_for_a_raise(run)
        assert "step" not in run.events("ticket_opened")[0]
        probe.open.set()
        await run.answer(Action.EDIT, arguments={RAISE_BY: 3600})
        assert end_of(run) == NaturalEnd()
        assert [one.call_id for one in probe.handed] == ["c1", "c1"]
