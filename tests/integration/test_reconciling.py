"""Calls that a lost worker left running: their reconcilers are called first, then people decide."""

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from app.commands.followups.background_tasks import list_tasks
from app.domain.agents.specs import ToolExecution
from app.domain.children.background_tasks import OUTCOME_UNKNOWN, Task, TaskFilter, TaskStatus
from app.domain.slices import PageRequest
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.reconciliation import DidNotHappen, DontKnow, Happened
from app.llm.scripted.model import in_order, turn
from tests.support.conditions import eventually
from tests.support.probes import Probe
from tests.support.replicas import ANN, Event, Run, an_agent, of_type, open_replica, texts_of

pytestmark = pytest.mark.anyio

in_every_way = pytest.mark.parametrize(
    "way",
    [{}, {"tool_execution": ToolExecution.PARALLEL}, {"approved": True}],
    ids=["one after the other", "side by side", "approved before"],
)
"""In which a call may have come to its tool."""


def happened(key: str) -> Happened:
    return Happened(f"it had run under {key}")


def did_not_happen(key: str) -> DidNotHappen:
    return DidNotHappen()


def failing(key: str) -> DontKnow:
    raise ConnectionError("connection refused")


async def lost_during(
    url: str, probe: Probe, *others: Probe, approved: bool = False, **more: Any
) -> tuple[Run, list[Event], list[str]]:
    """A run whose worker died during the probe's call: the next worker's events and the tool results."""
    probe.held = True
    approval = ["probe"] if approved else []
    agent = an_agent(probe.tool, *(other.tool for other in others), approval=approval, **more)
    calls = [probe.call("c1"), *(other.call(f"c{n}") for n, other in enumerate(others, 2))]
    async with open_replica(url, agent, in_order(turn(*calls))) as first:
        run = await first.start()
        if approved:
            await run.finished()
            await run.decide("perm_c1", "approve")
        await probe.was_reached()
        if probe.shows:
            await run.until("activity_snapshot")
        await first.kill()
    probe.open.set()
    async with open_replica(url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        emitted = await run.finished(1 + approved)
        log = [text for role, text in texts_of(await run.log()) if role == "tool"]
        tickets = await run.tickets()
    unknown = [ticket for ticket in tickets if ticket.kind is TicketKind.OUTCOME_UNKNOWN]
    assert bool(unknown) is (emitted[-1]["termination"]["type"] == "suspended")
    if unknown:
        [ticket] = unknown
        assert ticket.evidence is not None
        emitted[-1]["asked"] = ticket
    return run, emitted, log


@in_every_way
async def test_a_call_that_happened_is_reported_and_not_repeated(
    database_url: str, way: dict[str, Any]
) -> None:
    probe, behind = Probe(reconcile=happened), Probe(name="behind")
    run, emitted, log = await lost_during(database_url, probe, behind, **way)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert f"it had run under {run.id}:0:c1" in log
    assert (len(probe.handed), len(behind.handed)) == (1, 1)


@in_every_way
async def test_a_call_that_did_not_happen_is_run_under_the_same_key(
    database_url: str, way: dict[str, Any]
) -> None:
    probe = Probe(reconcile=did_not_happen)
    _, emitted, log = await lost_during(database_url, probe, **way)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert log[-1] == "probe did it"
    assert len(probe.handed) == 2
    assert len({handed.idempotency_key for handed in probe.handed}) == 1


@in_every_way
async def test_a_ticket_is_opened_when_the_tool_cannot_reconcile_the_call(
    database_url: str, way: dict[str, Any]
) -> None:
    probe = Probe(reconcile=failing)
    _, emitted, _ = await lost_during(database_url, probe, **way)
    why = "its tool was asked and failed: connection refused"
    assert emitted[-1]["asked"].evidence["reconcile"] == why
    assert emitted[-1]["asked"].message.endswith(f"unknown: {why}")
    assert len(probe.handed) == 1


@pytest.mark.parametrize(
    ("reconcile", "executions"), [(happened, 1), (did_not_happen, 2), (failing, 2)]
)
async def test_a_repeatable_call_with_unknown_outcome_is_run_again(
    database_url: str, reconcile: Callable[..., Any], executions: int
) -> None:
    probe = Probe(effect="idempotent", reconcile=reconcile)
    _, emitted, _ = await lost_during(database_url, probe)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert len(probe.handed) == executions


async def test_the_ticket_of_an_unknown_outcome_shows_its_evidence(database_url: str) -> None:
    probe = Probe(shows="Transferring " * 500 + "the last cent")
    run, emitted, _ = await lost_during(database_url, probe)
    evidence = emitted[-1]["asked"].evidence
    assert evidence["idempotency_key"] == f"{run.id}:0:c1"
    assert evidence["started_at"] < emitted[-1]["asked"].created_at.isoformat()
    worker = evidence["worker"]
    assert (worker["host"], worker["pid"]) == (socket.gethostname(), os.getpid())
    assert worker["id"] not in ("", run.replica.me)
    assert worker["heartbeat_at"] is not None
    assert len(evidence["streamed"]) == 4000
    assert evidence["streamed"].endswith("the last cent")
    assert (evidence["progress"]["progress"], evidence["progress"]["message"]) == (
        0.5,
        "half of it",
    )
    [opened] = of_type(emitted, "ticket_opened")
    assert opened["ticket"]["evidence"] == evidence


async def test_the_ticket_of_an_unknown_outcome_without_evidence_shows_none(
    database_url: str,
) -> None:
    _, emitted, _ = await lost_during(database_url, Probe())
    assert {"streamed", "progress", "reconcile"}.isdisjoint(emitted[-1]["asked"].evidence)


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize(
    ("reconcile", "status", "executions"),
    [
        (happened, TaskStatus.SUCCEEDED, 1),
        (did_not_happen, TaskStatus.SUCCEEDED, 2),
        (failing, TaskStatus.FAILED, 1),
    ],
)
async def test_a_task_is_reconciled_like_a_call(
    database_url: str,
    reconcile: Callable[..., Any],
    status: TaskStatus,
    executions: int,
    killed: bool,
) -> None:
    probe = Probe(held=True, reconcile=reconcile)
    agent = an_agent(probe.tool, background=["probe"])
    script = in_order(turn(probe.call("c1")), turn("Waiting."))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        if killed:
            await first.kill()
    probe.open.set()
    async with open_replica(database_url, agent, in_order(turn("Done."))) as second:

        async def task_when_ended() -> Task | None:
            [task] = await list_tasks(second.ctx, ANN, run.id, TaskFilter(), PageRequest())
            return task if task.status.is_final else None

        task = await eventually(task_when_ended)
        await second.same(run).finished(2)
    assert (task.status, len(probe.handed)) == (status, executions)
    if status is TaskStatus.FAILED:
        assert task.error == f"{OUTCOME_UNKNOWN}; its tool was asked and failed: connection refused"
