"""Agents that give work to others, each with turns of its own, and runs with all that comes of them."""

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
from app.runtime.ports import ModelRequest, Tool
from app.storage.children import child_runs, lost_followups
from tests.support.conditions import eventually
from tests.support.house import Replica, Run, an_agent, joined
from tests.support.probes import Probe


@dataclass(frozen=True, slots=True)
class Member:
    """One agent: what it answers in turn, and whom it may give work to."""

    turns: Sequence[ScriptedTurn] | Script
    delegates: Sequence[str] = ()
    tools: Sequence[Tool] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def family(**members: Member) -> tuple[Catalog, Script]:
    """The agents, the first of which is started, and the script of them all."""
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
    """A script that is a list, whoever plays it from where on; a turn may be about the first task."""

    def play(request: ModelRequest) -> ScriptedTurn:
        said = sum(message.role is Role.ASSISTANT for message in request.messages)
        chosen = turns[said]
        if isinstance(chosen, ScriptedTurn):
            return chosen
        begun = next(message for message in request.messages if message.role is Role.TOOL)
        return chosen(TaskId(json.loads(begun.text)["task_id"]))

    return play


def work_for(agent: str, prompt: str = "look it up", id: str | None = None) -> Call:
    """A call that gives work to an agent."""
    call_id = None if id is None else CallId(id)
    return Call(tool=f"agent_run_{agent}", arguments={"prompt": prompt}, id=call_id)


def cautious(probe: Probe, *turns: ScriptedTurn) -> Member:
    """Calls the probe first, which somebody has to approve."""
    return Member(
        [turn(probe.call("c1")), *turns], tools=[probe.tool], more={"approval": ["probe"]}
    )


async def children_of(run: Run) -> list[Run]:
    """The children of a run as it stands."""
    async with run.replica.database.reading() as connection:
        found = await child_runs.of_run(connection, run.record.tenant, run.id)
    return [Run(run.replica, record) for record in found]


async def family_of(run: Run, size: int) -> list[Run]:
    """The children of a run, once there are so many."""

    async def look() -> list[Run] | None:
        found = await children_of(run)
        return found if len(found) == size else None

    return await eventually(look)


async def children_forgotten(run: Run) -> None:
    """Once none of them is there any more."""

    async def look() -> bool:
        return not await children_of(run)

    await eventually(look)


async def records_below(house: Replica, run: Run) -> list[RunRecord]:
    async with house.database.reading() as connection:
        return await child_runs.descendants(connection, run.record.tenant, run.id)


async def lose_errands(house: Replica) -> None:
    """As the queue does over whose failure the database went away."""
    await house.database.pool.execute("DELETE FROM pgq.pgqueuer WHERE entrypoint = 'errand'")


async def overdue(house: Replica) -> list[ChildFollowup]:
    """What the sweeper would have done now, if nothing needed its time."""
    async with house.database.reading() as connection:
        return await lost_followups.of_children(connection, grace=0, limit=10)
