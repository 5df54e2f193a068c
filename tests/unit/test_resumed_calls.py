"""Calls that run after a decision or a raised limit: their results survive a lost worker and are reported once."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.limit_tickets import RAISE_BY
from app.domain.tickets.tickets import Ticket, TicketKind
from app.domain.tools.tool_calls import ToolResult
from app.llm.scripted.model import turn
from app.runtime.plugins import HookView, Phase, Plugin, Request, SetResult
from tests.support.hooks import Hooks
from tests.support.plain_runs import PlainRun
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

ONE_CALL = {"limits": {"tool_calls": 1}, "on_limit": "ask"}


class StuckAfter:
    """A plugin whose hook after one call never returns, until the test lets it."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        self.plugin = Plugin(name="stuck", hooks={Phase.AFTER_TOOL_EXECUTE: self._hook})

    async def _hook(self, view: HookView) -> Sequence[Request]:
        if view.call is not None and view.call.id == self._call_id:
            assert view.result is not None
            if view.result.suspension is None:
                self.reached.set()
                await self.open.wait()
        return ()


def end_of(run: PlainRun) -> object:
    state = run.rows.record.state
    assert isinstance(state, Done)
    return state.termination


def ids_of(run: PlainRun, kind: str) -> list[str]:
    return [event["tool_call_id"] for event in run.events(kind)]


def result_of(run: PlainRun, call_id: str) -> str:
    texts = [each.message.text for each in run.rows.log if each.message.tool_call_id == call_id]
    return texts[-1]


async def lose_worker_after(run: PlainRun, answer: DecisionAnswer, stuck: StuckAfter) -> None:
    """Answer the open ticket, lose the worker in the hook after the call, and execute the run again."""
    [ticket] = run.rows.open_tickets
    await run.system.decide(ticket, answer)
    await run.lose_worker(stuck.reached)
    stuck.open.set()
    await run.execute()


async def test_the_result_of_an_approved_call_survives_its_worker() -> None:
    probe, stuck = Probe(asks=1), StuckAfter("c1")
    run = PlainRun(turn(probe.call("c1")), tools=[probe.tool], plugins=[stuck.plugin])
    await run.start()
    await lose_worker_after(run, DecisionAnswer(action=Action.APPROVE), stuck)
    assert end_of(run) == NaturalEnd()
    assert len(probe.handed) == 2
    assert result_of(run, "c1") == "probe did it"
    assert ids_of(run, "tool_call_resumed") == ["c1"]
    assert ids_of(run, "tool_call_done") == ["c1"]


async def test_the_result_of_a_call_that_a_limit_held_survives_its_worker() -> None:
    probe, stuck = Probe(), StuckAfter("c2")
    run = PlainRun(
        turn(probe.call("c1"), probe.call("c2")), tools=[probe.tool], plugins=[stuck.plugin]
    )
    await run.start(request=ONE_CALL)
    raised = DecisionAnswer(action=Action.EDIT, arguments={RAISE_BY: 5})
    await lose_worker_after(run, raised, stuck)
    assert end_of(run) == NaturalEnd()
    assert [one.call_id for one in probe.handed] == ["c1", "c2"]
    assert result_of(run, "c2") == "probe did it"
    assert ids_of(run, "tool_call_resumed") == ["c2"]


def ticket_of(run: PlainRun, call_id: str) -> Ticket:
    [ticket] = [each for each in run.rows.open_tickets if each.call_id == call_id]
    return ticket


async def test_a_decision_that_waits_for_a_raise_holds_up_no_other_decision() -> None:
    probe, counted = Probe(effect="read"), Probe(name="counted")
    run = PlainRun(
        turn(counted.call("c0"), probe.call("c1"), probe.call("c2")),
        tools=[probe.tool, counted.tool],
        approval=("probe",),
        tool_execution=ToolExecution.PARALLEL,
    )
    await run.start(request=ONE_CALL)
    await run.system.decide(ticket_of(run, "c1"), DecisionAnswer(action=Action.APPROVE))
    await run.answer(Action.REJECT, to=ticket_of(run, "c2"), reason="not this one")
    assert [each.kind for each in run.rows.open_tickets] == [TicketKind.LIMIT]
    assert result_of(run, "c2") == "Denied: not this one"
    await run.answer(Action.EDIT, arguments={RAISE_BY: 1})
    assert end_of(run) == NaturalEnd()
    assert [one.call_id for one in probe.handed] == ["c1"]


async def test_a_result_that_a_plugin_gives_after_the_approval_is_reported_as_resumed() -> None:
    def gate(view: HookView) -> Sequence[Request]:
        given = SetResult(ToolResult.success("probe", "as before"))
        return [given] if view.was_approved else []

    probe = Probe()
    run = PlainRun(
        turn(probe.call("c1")),
        tools=[probe.tool],
        plugins=[Hooks({Phase.TOOL_GATE: gate}).plugin],
        approval=("probe",),
    )
    await run.start()
    await run.answer(Action.APPROVE)
    assert end_of(run) == NaturalEnd()
    assert probe.handed == []
    assert result_of(run, "c1") == "as before"
    assert ids_of(run, "tool_call_resumed") == ["c1"]
    assert ids_of(run, "tool_call_done") == ["c1"]


@pytest.mark.parametrize("phase", [Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE])
async def test_a_result_is_saved_before_hooks_of_the_next_call(phase: Phase) -> None:
    probe, reached, may_return = Probe(), asyncio.Event(), asyncio.Event()

    async def stuck(view: HookView) -> Sequence[Request]:
        if view.call is not None and view.call.id == "c2":
            reached.set()
            await may_return.wait()
        return ()

    run = PlainRun(
        turn(probe.call("c1"), probe.call("c2")),
        tools=[probe.tool],
        plugins=[Plugin(name="stuck", hooks={phase: stuck})],
    )
    await run.create()
    await run.lose_worker(reached)
    may_return.set()
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert [one.call_id for one in probe.handed] == ["c1", "c2"]
