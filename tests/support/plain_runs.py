"""A run in memory with a scripted model, executed by the real loop."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, AgentVersion
from app.domain.structs import replace
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.tickets import Ticket
from app.llm.scripted.model import ScriptedModel, ScriptedText, ScriptedTurn, turn
from app.runtime.active_run import ActiveRun
from app.runtime.agent import Agents, RemoteAgent, ResolvedAgent, UnknownAgentVersion
from app.runtime.cancellation import Interruption
from app.runtime.endings import Ending
from app.runtime.plugins import Plugin, PluginSet
from app.runtime.ports.models import ModelRequest
from app.runtime.ports.tools import Tool
from tests.support.event_order import Event, check_thread
from tests.support.memory_system import MemorySystem
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
        self.system = MemorySystem(spec)
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
        """Start the run without a claim."""
        await self.system.start(here=False)
        self.change(**of_record)

    def change(self, **of_record: Any) -> None:
        self.system.record = replace(self.system.record, **of_record)

    async def execute(self) -> Ending:
        """Claim the run and execute it until it ends, suspends or is handed over."""
        claimed = await self.system.claim()
        assert claimed is not None, "the run is done"
        self.interruption = Interruption()
        run, emitter = await self.system.load(claimed, self.agent, self, self.interruption)
        self.before_it_executes(run)
        ending = await self.system.advance(run)
        await emitter.flush()
        self.rows = await self.system.rows()
        check_thread(self.rows.events)
        return ending

    async def lose_worker(self, reached: asyncio.Event) -> None:
        """Execute the run, and kill its worker once `reached` is set."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.execute())
            await until(reached)
            task.cancel()
        self.rows = await self.system.rows()

    async def answer(self, action: Action, *, to: Ticket | None = None, **more: Any) -> Ending:
        """Decide the open ticket, or the given one, and execute the run."""
        if to is None:
            [to] = self.rows.open_tickets
        await self.system.decide(to, DecisionAnswer(action=action, **more))
        return await self.execute()

    def _next_turn(self, request: ModelRequest) -> ScriptedTurn:
        self.requests.append(request)
        return self._turns.pop(0) if self._turns else turn(ScriptedText(("Done.",)))

    def events(self, kind: str) -> list[Event]:
        return [event for event in self.rows.of_run if event["event_type"] == kind]

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(entry.message.role.value, entry.message.text) for entry in self.rows.log]


async def loaded_run(*, record: dict[str, Any] | None = None, **more: Any) -> ActiveRun:
    """A run as the loop gets it, with other fields of it and of its record."""
    plain = PlainRun()
    await plain.create()
    claimed = await plain.system.claim()
    assert claimed is not None
    run, _ = await plain.system.load(claimed, plain.agent, plain, Interruption())
    changed = replace(run.record, **(record or {}))
    return dataclasses.replace(run, record=changed, **more)


async def until(event: asyncio.Event) -> None:
    """Wait for a signal, with a time-out."""
    await asyncio.wait_for(event.wait(), 15)
