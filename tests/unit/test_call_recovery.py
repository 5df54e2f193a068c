"""Calls of a lost worker: the reconciler decides first, then the effect, then a person."""

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.ids import CallId
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


async def run_with_lost_worker(
    probe: Probe, mode: ToolExecution = ToolExecution.SEQUENTIAL
) -> PlainRun:
    """A run whose worker is lost during the first call, while a second call waits."""
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
async def test_a_rerunnable_call_is_rerun(mode: ToolExecution, effect: Any) -> None:
    probe = Probe(effect=effect)
    run = await run_with_lost_worker(probe, mode)
    before = len(probe.handed)
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert calls_handed(probe)[:2] == ["c1", "c1"]
    assert len(probe.handed) == before + 2
    keys = {one.idempotency_key for one in probe.handed if one.call_id == "c1"}
    assert len(keys) == 1


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_an_unsafe_call_is_never_rerun_without_a_decision(mode: ToolExecution) -> None:
    probe = Probe()
    run = await run_with_lost_worker(probe, mode)
    handed = calls_handed(probe)
    await run.execute()
    tickets = run.rows.open_tickets
    assert {ticket.kind for ticket in tickets} == {TicketKind.OUTCOME_UNKNOWN}
    assert tickets[0].name == "unknown_c1"
    assert tickets[0].message.endswith("whether it took effect is unknown")
    assert tickets[0].evidence is not None
    assert tickets[0].evidence["started_at"] is not None
    assert tickets[0].evidence["arguments"] == {}
    assert "reconcile" not in tickets[0].evidence
    assert calls_handed(probe).count("c1") == handed.count("c1") == 1
    for ticket in tickets:
        await run.answer(Action.RESPOND, to=ticket, result="it was paid")
    assert end_of(run) == NaturalEnd()
    assert calls_handed(probe) == ["c1", "c2"]


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_person_can_approve_the_rerun_of_an_unsafe_call(mode: ToolExecution) -> None:
    probe = Probe()
    run = await run_with_lost_worker(probe, mode)
    await run.execute()
    for ticket in run.rows.open_tickets:
        await run.answer(Action.APPROVE, to=ticket)
    assert end_of(run) == NaturalEnd()
    assert calls_handed(probe).count("c1") == 2


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_reconciler_that_found_the_effect_gives_the_result(mode: ToolExecution) -> None:
    probe = Probe(reconcile=happened)
    run = await run_with_lost_worker(probe, mode)
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert calls_handed(probe).count("c1") == 1
    assert ("tool", "it was done") in run.texts
    # The call behind it isn't interrupted.
    assert {event["result"]["outcome"] for event in run.events("tool_call_done")} == {"succeeded"}
    [first, *_] = run.events("tool_call_done")
    assert (first["tool_call_id"], first["result"]["text"]) == ("c1", "it was done")


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_call_whose_reconciler_found_no_effect_runs_again(
    mode: ToolExecution,
) -> None:
    probe = Probe(reconcile=did_not_happen)
    run = await run_with_lost_worker(probe, mode)
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
async def test_the_ticket_names_why_the_outcome_is_unknown(
    reconcile: Callable[..., Any], why: str
) -> None:
    run = await run_with_lost_worker(Probe(reconcile=reconcile))
    await run.execute()
    [ticket] = run.rows.open_tickets
    assert ticket.message.endswith(f"is unknown: {why}")
    assert ticket.evidence is not None
    assert ticket.evidence["reconcile"] == why


# --- lost after a decision ---------------------------------------------------------------------


async def run_with_lost_worker_after_a_decision(probe: Probe, *approved: str) -> PlainRun:
    """A run whose worker is lost during the first of the calls that a person approved."""
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
    tickets = {ticket.call_id: ticket for ticket in run.rows.open_tickets}
    for call_id in approved or ["c1"]:
        answer = DecisionAnswer(action=Action.APPROVE, result="go on")
        await run.system.decide(tickets[CallId(call_id)], answer)
    await run.lose_worker(probe.reached)
    probe.open.set()
    return run


def resumed(run: PlainRun) -> list[str]:
    return [event["tool_call_id"] for event in run.events("tool_call_resumed")]


async def test_a_rerun_call_uses_its_decision_again() -> None:
    probe = Probe(effect="read")
    run = await run_with_lost_worker_after_a_decision(probe)
    before = len(probe.handed)
    await run.execute()
    assert resumed(run) == ["c1"]
    assert len(probe.handed) == before + 1
    assert (probe.handed[-1].call_id, probe.handed[-1].resume_input) == ("c1", "go on")
    [ticket] = run.rows.open_tickets
    await run.answer(Action.APPROVE, to=ticket)
    assert end_of(run) == NaturalEnd()


async def test_a_decision_is_consumed_when_the_reconciler_found_the_effect() -> None:
    probe = Probe(reconcile=happened)
    run = await run_with_lost_worker_after_a_decision(probe)
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


async def test_a_decision_is_consumed_when_a_person_is_asked_for_the_outcome() -> None:
    probe = Probe()
    run = await run_with_lost_worker_after_a_decision(probe)
    before = len(probe.handed)
    await run.execute()
    assert len(probe.handed) == before
    kinds = {ticket.call_id: ticket.kind for ticket in run.rows.open_tickets}
    assert kinds == {"c1": TicketKind.OUTCOME_UNKNOWN, "c2": TicketKind.INPUT}
    for ticket in run.rows.open_tickets:
        await run.answer(Action.RESPOND, to=ticket, result="paid")
    assert end_of(run) == NaturalEnd()
    assert len(probe.handed) == before


async def test_a_call_behind_one_that_waits_is_recovered_too() -> None:
    probe = Probe(reconcile=happened)
    run = await run_with_lost_worker_after_a_decision(probe, "c2")
    before = len(probe.handed)
    await run.execute()
    assert resumed(run) == ["c2"]
    assert len(probe.handed) == before
    [ticket] = run.rows.open_tickets
    assert ticket.call_id == "c1"


async def test_the_decision_about_another_call_is_applied_after_the_recovery() -> None:
    probe = Probe(reconcile=happened)
    run = await run_with_lost_worker_after_a_decision(probe, "c1", "c2")
    before = len(probe.handed)
    await run.execute()
    assert end_of(run) == NaturalEnd()
    assert sorted(resumed(run)) == ["c1", "c2"]
    assert [one.call_id for one in probe.handed[before:]] == ["c2"]
