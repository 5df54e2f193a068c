"""Calls over which a worker was lost: their tool is asked, then their effect decides, then a person."""

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.reconciliation import DidNotHappen, DontKnow, Happened
from app.llm.scripted.model import turn
from tests.support.plain_runs import PlainRun
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


def happened(key: str) -> Happened:
    return Happened("it was done")


def did_not_happen(key: str) -> DidNotHappen:
    return DidNotHappen()


def dont_know(key: str) -> DontKnow:
    return DontKnow("the bank is closed")


def broken(key: str) -> DontKnow:
    raise ValueError("no line")


async def lost(probe: Probe, mode: ToolExecution = ToolExecution.SEQUENTIAL) -> PlainRun:
    """A run whose worker is lost while the tool has its first call, and another call waits."""
    probe.held = True
    run = PlainRun(
        turn(probe.call("c1"), probe.call("c2")),
        turn("Done."),
        tools=[probe.tool],
        tool_execution=mode,
    )
    await run.create()
    await run.lose_worker(probe.reached)
    probe.open.set()
    return run


def end_of(run: PlainRun) -> object:
    state = run.rows.record.state
    assert isinstance(state, Done)
    return state.termination


def calls_handed(probe: Probe) -> list[str]:
    return sorted(one.call_id for one in probe.handed)


@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_call_that_may_run_again_is_run_again(mode: ToolExecution, effect: Any) -> None:
    probe = Probe(effect=effect)
    run = await lost(probe, mode)
    before = len(probe.handed)
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert calls_handed(probe)[:2] == ["c1", "c1"]
    assert len(probe.handed) == before + 2
    keys = {one.idempotency_key for one in probe.handed if one.call_id == "c1"}
    assert len(keys) == 1


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_an_unsafe_call_is_never_run_again_without_a_person(mode: ToolExecution) -> None:
    probe = Probe()
    run = await lost(probe, mode)
    handed = calls_handed(probe)
    await run.execute()
    tickets = run.rows.open_tickets
    assert {ticket.kind for ticket in tickets} == {TicketKind.OUTCOME_UNKNOWN}
    assert tickets[0].name == "unknown_c1"
    assert tickets[0].message.endswith("whether it took effect is unknown")
    assert tickets[0].evidence is not None
    assert tickets[0].evidence["started_at"] is not None
    assert tickets[0].evidence["ran_with"] == {}
    assert "reconcile" not in tickets[0].evidence
    assert calls_handed(probe).count("c1") == handed.count("c1") == 1
    for ticket in tickets:
        await run.answer(Action.RESPOND, to=ticket, result="it was paid")
    assert end_of(run) == NaturalEnd()
    assert calls_handed(probe).count("c1") == 1


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_person_may_let_an_unsafe_call_run_again(mode: ToolExecution) -> None:
    probe = Probe()
    run = await lost(probe, mode)
    await run.execute()
    for ticket in run.rows.open_tickets:
        await run.answer(Action.APPROVE, to=ticket)
    assert end_of(run) == NaturalEnd()
    assert calls_handed(probe).count("c1") == 2


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_tool_that_knows_that_it_happened_gives_the_result(mode: ToolExecution) -> None:
    probe = Probe(reconcile=happened)
    run = await lost(probe, mode)
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert calls_handed(probe).count("c1") == 1
    assert ("tool", "it was done") in run.texts
    [first, *_] = run.events("tool_call_done")
    assert (first["id"], first["result"]["data"]) == ("c1", "it was done")


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_tool_that_knows_that_it_did_not_happen_gets_the_call_again(
    mode: ToolExecution,
) -> None:
    probe = Probe(reconcile=did_not_happen)
    run = await lost(probe, mode)
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert calls_handed(probe).count("c1") == 2


@pytest.mark.parametrize(
    "reconcile, why",
    [
        (dont_know, "the bank is closed"),
        (broken, "its tool was asked and failed: no line"),
    ],
)
async def test_a_person_reads_why_a_tool_doesnt_know(
    reconcile: Callable[..., Any], why: str
) -> None:
    run = await lost(Probe(reconcile=reconcile))
    await run.execute()
    [ticket] = run.rows.open_tickets
    assert ticket.message.endswith(f"is unknown: {why}")
    assert ticket.evidence is not None
    assert ticket.evidence["reconcile"] == why


# --- lost after an answer ---------------------------------------------------------------------


async def lost_after_an_answer(probe: Probe) -> PlainRun:
    """A run whose worker is lost while the tool has a call that a person let pass."""
    run = PlainRun(
        turn(probe.call("c1"), probe.call("c2")),
        turn("Done."),
        tools=[probe.tool],
        tool_execution=ToolExecution.PARALLEL,
    )
    probe.asks = 2
    await run.start()
    probe.held = True
    probe.reached.clear()
    first = run.rows.open_tickets[0]
    assert first.call_id == "c1"
    await run.house.decide(first, DecisionAnswer(action=Action.APPROVE, result="go on"))
    await run.lose_worker(probe.reached)
    probe.open.set()
    return run


def resumed(run: PlainRun) -> list[str]:
    return [event["target_id"] for event in run.events("tool_call_resumed")]


async def test_an_answer_is_used_again_for_a_call_that_is_run_again() -> None:
    probe = Probe(effect="read")
    run = await lost_after_an_answer(probe)
    before = len(probe.handed)
    await run.execute()
    assert resumed(run) == ["c1"]
    assert len(probe.handed) == before + 1
    assert (probe.handed[-1].call_id, probe.handed[-1].resume_input) == ("c1", "go on")
    [ticket] = run.rows.open_tickets
    await run.answer(Action.APPROVE, to=ticket)
    assert end_of(run) == NaturalEnd()


async def test_an_answer_is_used_up_when_the_tool_knows_that_the_call_happened() -> None:
    probe = Probe(reconcile=happened)
    run = await lost_after_an_answer(probe)
    before = len(probe.handed)
    await run.execute()
    assert resumed(run) == ["c1"]
    assert len(probe.handed) == before
    assert ("tool", "it was done") in run.texts
    assert all(t.applied_at for t in run.rows.tickets if t.call_id == "c1")
    [ticket] = run.rows.open_tickets
    assert ticket.call_id == "c2"
    await run.answer(Action.APPROVE, to=ticket)
    assert end_of(run) == NaturalEnd()


async def test_an_answer_is_used_up_when_a_person_is_asked_for_the_outcome() -> None:
    probe = Probe()
    run = await lost_after_an_answer(probe)
    before = len(probe.handed)
    await run.execute()
    assert len(probe.handed) == before
    kinds = {ticket.call_id: ticket.kind for ticket in run.rows.open_tickets}
    assert kinds == {"c1": TicketKind.OUTCOME_UNKNOWN, "c2": TicketKind.INPUT}
    for ticket in run.rows.open_tickets:
        await run.answer(Action.RESPOND, to=ticket, result="paid")
    assert end_of(run) == NaturalEnd()
    assert len(probe.handed) == before
