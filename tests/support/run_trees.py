"""Agents that delegate to each other, each with its own script, and the trees of their runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.agents.catalog import Catalog
from app.domain.children.followups import ChildFollowup
from app.domain.ids import AgentId, CallId, TaskId
from app.domain.runs.runs import RunRecord
from app.domain.threads.messages import Role
from app.llm.scripted.model import Call, Script, ScriptedTurn, in_order, turn
from app.runtime.ports.models import ModelRequest
from app.runtime.ports.tools import Tool
from app.storage.children import child_runs, lost_followups
from tests.support.conditions import eventually
from tests.support.probes import Probe
from tests.support.replicas import Event, Replica, Run, an_agent, joined, of_type


@dataclass(frozen=True, slots=True)
class ScriptedAgent:
    """One agent: its answers in order, and its delegates."""

    turns: Sequence[ScriptedTurn] | Script
    delegates: Sequence[str] = ()
    tools: Sequence[Tool] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def agents_with_delegates(**members: ScriptedAgent) -> tuple[Catalog, Script]:
    """A catalog with the agents, the first of which is started, and one script for all."""
    plays: dict[str, Script] = {
        name: each.turns if callable(each.turns) else in_order(*each.turns)
        for name, each in members.items()
    }

    def play(request: ModelRequest) -> ScriptedTurn:
        return plays[request.system_prompt](request)

    catalogs = [
        an_agent(
            *each.tools,
            id=name,
            system_prompt=name,
            delegates=tuple(AgentId(other) for other in each.delegates),
            **each.more,
        )
        for name, each in members.items()
    ]
    return joined(*catalogs), play


def by_transcript(*turns: ScriptedTurn | Callable[[TaskId], ScriptedTurn]) -> Script:
    """A script that picks the turn by the number of assistant messages; a turn may refer to the first task."""

    def play(request: ModelRequest) -> ScriptedTurn:
        answered = sum(message.role is Role.ASSISTANT for message in request.messages)
        chosen = turns[answered]
        if isinstance(chosen, ScriptedTurn):
            return chosen
        begun = next(message for message in request.messages if message.role is Role.TOOL)
        return chosen(TaskId(json.loads(begun.text)["task_id"]))

    return play


def work_for(agent: str, prompt: str = "look it up", id: str | None = None) -> Call:
    """A call of the delegate tool of an agent."""
    call_id = None if id is None else CallId(id)
    return Call(tool=f"agent_run_{agent}", arguments={"prompt": prompt}, id=call_id)


def cautious(probe: Probe, *turns: ScriptedTurn) -> ScriptedAgent:
    """An agent that calls the probe first, which needs approval."""
    return ScriptedAgent(
        [turn(probe.call("c1")), *turns], tools=[probe.tool], more={"approval": ["probe"]}
    )


async def children_of(run: Run) -> list[Run]:
    """The current children of a run."""
    async with run.replica.database.reading() as connection:
        found = await child_runs.of_run(connection, run.record.tenant, run.id)
    return [Run(run.replica, record) for record in found]


async def family_of(run: Run, size: int) -> list[Run]:
    """Waits until a run has `size` children; returns them."""

    async def check() -> list[Run] | None:
        found = await children_of(run)
        return found if len(found) == size else None

    return await eventually(check)


async def until_children_are_deleted(run: Run) -> None:
    """Waits until the run has no children any more."""

    async def check() -> bool:
        return not await children_of(run)

    await eventually(check)


async def records_below(replica: Replica, run: Run) -> list[RunRecord]:
    async with replica.database.reading() as connection:
        return await child_runs.descendants(connection, run.record.tenant, run.id)


async def opened_below(run: Run, count: int) -> Sequence[Event]:
    """Waits until the run's stream has shown this many tickets of runs below it; returns their events."""
    total = count
    while True:
        opened = of_type(await run.until("ticket_opened", total), "ticket_opened")
        below = [event for event in opened if "child" in event]
        if len(below) >= count:
            return below
        total = len(opened) + 1


async def lose_followups(replica: Replica) -> None:
    """Delete all queued follow-ups, as when the queue loses them in an outage."""
    await replica.database.pool.execute("DELETE FROM pgq.pgqueuer WHERE entrypoint = 'followup'")


async def overdue(replica: Replica) -> list[ChildFollowup]:
    """The lost follow-ups that the sweeper would enqueue now."""
    async with replica.database.reading() as connection:
        return await lost_followups.of_children(connection, grace=0, limit=10)
