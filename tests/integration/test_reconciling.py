"""Calls that a lost worker left running: their tools are asked first, and people see what is known."""

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from app.commands.followups.background_tasks import list_tasks
from app.domain.agents.specs import ToolExecution
from app.domain.children.background_tasks import OUTCOME_UNKNOWN, Task, TaskStatus
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.reconciliation import DidNotHappen, DontKnow, Happened
from app.llm.scripted.model import in_order, turn
from tests.support.conditions import eventually
from tests.support.house import ANN, Event, Run, an_agent, of_type, replica, texts_of
from tests.support.probes import Probe

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
    raise ConnectionError("nobody answers")


async def lost_over(
    url: str, probe: Probe, *others: Probe, approved: bool = False, **more: Any
) -> tuple[Run, list[Event], list[str]]:
    """A run whose worker died over the probe's call: what the next one said and what the model read."""
    probe.held = True
    approval = ["probe"] if approved else []
    agent = an_agent(probe.tool, *(other.tool for other in others), approval=approval, **more)
    calls = [probe.call("c1"), *(other.call(f"c{n}") for n, other in enumerate(others, 2))]
    async with replica(url, agent, in_order(turn(*calls))) as first:
        run = await first.start()
        if approved:
            await run.finished()
            await run.decide("perm_c1", "approve")
        await probe.was_reached()
        if probe.shows:
            await run.until("activity_snapshot")
        await first.kill()
    probe.open.set()
    async with replica(url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        said = await run.finished(1 + approved)
        log = [text for role, text in texts_of(await run.log()) if role == "tool"]
        tickets = await run.tickets()
    unknown = [ticket for ticket in tickets if ticket.kind is TicketKind.OUTCOME_UNKNOWN]
    assert bool(unknown) is (said[-1]["termination"]["type"] == "suspended")
    if unknown:
        [ticket] = unknown
        assert ticket.evidence is not None
        said[-1]["asked"] = ticket
    return run, said, log


@in_every_way
async def test_what_happened_is_told_and_not_done_again(
    database_url: str, way: dict[str, Any]
) -> None:
    probe, behind = Probe(reconcile=happened), Probe(name="behind")
    run, said, log = await lost_over(database_url, probe, behind, **way)
    assert said[-1]["termination"] == {"type": "natural_end"}
    assert f"it had run under {run.id}:0:c1" in log
    assert (len(probe.handed), len(behind.handed)) == (1, 1)


@in_every_way
async def test_what_did_not_happen_is_done_under_the_same_key(
    database_url: str, way: dict[str, Any]
) -> None:
    probe = Probe(reconcile=did_not_happen)
    _, said, log = await lost_over(database_url, probe, **way)
    assert said[-1]["termination"] == {"type": "natural_end"}
    assert log[-1] == "probe did it"
    assert len(probe.handed) == 2
    assert len({handed.idempotency_key for handed in probe.handed}) == 1


@in_every_way
async def test_a_person_is_asked_when_the_tool_cannot_say(
    database_url: str, way: dict[str, Any]
) -> None:
    probe = Probe(reconcile=failing)
    _, said, _ = await lost_over(database_url, probe, **way)
    why = "its tool was asked and failed: nobody answers"
    assert said[-1]["asked"].evidence["reconcile"] == why
    assert said[-1]["asked"].message.endswith(f"unknown: {why}")
    assert len(probe.handed) == 1


@pytest.mark.parametrize(
    ("reconcile", "executions"), [(happened, 1), (did_not_happen, 2), (failing, 2)]
)
async def test_what_may_be_done_again_is_when_nothing_else_is_known(
    database_url: str, reconcile: Callable[..., Any], executions: int
) -> None:
    probe = Probe(effect="idempotent", reconcile=reconcile)
    _, said, _ = await lost_over(database_url, probe)
    assert said[-1]["termination"] == {"type": "natural_end"}
    assert len(probe.handed) == executions


async def test_a_person_who_is_asked_sees_what_is_known(database_url: str) -> None:
    probe = Probe(shows="Transferring " * 500 + "the last cent")
    run, said, _ = await lost_over(database_url, probe)
    evidence = said[-1]["asked"].evidence
    assert evidence["idempotency_key"] == f"{run.id}:0:c1"
    assert evidence["started_at"] < said[-1]["asked"].created_at.isoformat()
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
    [opened] = of_type(said, "ticket_opened")
    assert opened["ticket"]["evidence"] == evidence


async def test_nothing_is_made_up_for_a_person(database_url: str) -> None:
    _, said, _ = await lost_over(database_url, Probe())
    assert {"streamed", "progress", "reconcile"}.isdisjoint(said[-1]["asked"].evidence)


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize(
    ("reconcile", "status", "executions"),
    [
        (happened, TaskStatus.COMPLETED, 1),
        (did_not_happen, TaskStatus.COMPLETED, 2),
        (failing, TaskStatus.FAILED, 1),
    ],
)
async def test_a_task_is_asked_like_a_call(
    database_url: str,
    reconcile: Callable[..., Any],
    status: TaskStatus,
    executions: int,
    killed: bool,
) -> None:
    probe = Probe(held=True, reconcile=reconcile)
    agent = an_agent(probe.tool, background=["probe"])
    script = in_order(turn(probe.call("c1")), turn("Waiting."))
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        if killed:
            await first.kill()
    probe.open.set()
    async with replica(database_url, agent, in_order(turn("Done."))) as second:

        async def ended() -> Task | None:
            [task] = await list_tasks(second.ctx, ANN, run.id, before=None, limit=1)
            return task if task.status.is_final else None

        task = await eventually(ended)
        await second.same(run).finished(2)
    assert (task.status, len(probe.handed)) == (status, executions)
    if status is TaskStatus.FAILED:
        assert task.error == f"{OUTCOME_UNKNOWN}; its tool was asked and failed: nobody answers"
