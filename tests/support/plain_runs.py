"""A run in memory with a scripted model, plain tools and plugins: what the real loop makes of it."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, AgentVersion
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.tickets import Ticket
from app.llm.scripted.model import Say, ScriptedModel, ScriptedTurn, turn
from app.runtime.active_run import ActiveRun
from app.runtime.agent import Agents, RemoteAgent, ResolvedAgent, UnknownAgentVersion
from app.runtime.cancellation import Interruption
from app.runtime.endings import Ending
from app.runtime.plugins import Plugin, PluginSet
from app.runtime.ports import ModelRequest, Tool
from tests.support.event_order import Event, check_thread
from tests.support.memory_house import MemoryHouse
from tests.support.thread_rows import Rows

SPEC = AgentSpec(id=AgentId("clerk"), model="scripted")


class PlainRun(Agents):
    """One run; `request`, `record` and the agent can be changed before each execution."""

    def __init__(
        self,
        *turns: ScriptedTurn,
        tools: Iterable[Tool] = (),
        plugins: Sequence[Plugin] = (),
        **of_spec: Any,
    ) -> None:
        by_name = {tool.descriptor.name: tool for tool in tools}
        spec = replace(SPEC, tools=tuple(by_name), **of_spec)
        self._turns = list(turns)
        self.requests: list[ModelRequest] = []
        self.house = MemoryHouse(spec)
        self.agent = ResolvedAgent(
            spec=spec,
            model=ScriptedModel("scripted", self._next_turn),
            tools=by_name,
            plugins=PluginSet(plugins),
        )
        self.others: dict[str, ResolvedAgent | RemoteAgent | UnknownAgentVersion] = {}
        self.interruption = Interruption()
        self.before_it_executes: Callable[[ActiveRun], None] = lambda _: None
        self.rows: Rows

    async def at_version(
        self, agent_id: AgentId, version: AgentVersion | None
    ) -> ResolvedAgent | RemoteAgent | UnknownAgentVersion:
        return self.others[agent_id]

    async def start(self, **of_record: Any) -> Ending:
        """Start the run, and execute it."""
        await self.create(**of_record)
        return await self.execute()

    async def create(self, **of_record: Any) -> None:
        """Start the run; a worker has still to take it."""
        await self.house.start(here=False)
        self.change(**of_record)

    def change(self, **of_record: Any) -> None:
        self.house.record = replace(self.house.record, **of_record)

    async def execute(self) -> Ending:
        """Let a worker have the run until it stops by itself."""
        claimed = await self.house.claim()
        assert claimed is not None, "the run is done"
        self.interruption = Interruption()
        run, voice = await self.house.load(claimed, self.agent, self, self.interruption)
        self.before_it_executes(run)
        ending = await self.house.advance(run)
        await voice.flush()
        self.rows = await self.house.rows()
        check_thread(self.rows.events)
        return ending

    async def lose_worker(self, reached: asyncio.Event) -> None:
        """Let a worker have the run, and kill the worker once that is reached."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.execute())
            await until(reached)
            task.cancel()
        self.rows = await self.house.rows()

    async def answer(self, action: Action, *, to: Ticket | None = None, **more: Any) -> Ending:
        """Answer the open question, or one of several, and execute the run."""
        if to is None:
            [to] = self.rows.open_tickets
        await self.house.decide(to, DecisionAnswer(action=action, **more))
        return await self.execute()

    def _next_turn(self, request: ModelRequest) -> ScriptedTurn:
        self.requests.append(request)
        return self._turns.pop(0) if self._turns else turn(Say(("Done.",)))

    def events(self, kind: str) -> list[Event]:
        return [event for event in self.rows.of_run if event["event_type"] == kind]

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(entry.message.role.value, entry.message.text) for entry in self.rows.log]


async def until(event: asyncio.Event) -> None:
    """Wait for a signal, and not for ever."""
    await asyncio.wait_for(event.wait(), 15)
