"""Executes a run from a list of turns, and reads its events and messages."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, CallId
from app.domain.json_values import JsonObject
from app.domain.structs import replace
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tools.tool_calls import Effect, ResumeMode
from app.llm.scripted.model import Call, ScriptedTurn
from app.runtime.ports.models import ModelRequest
from tests.support.event_order import Event
from tests.support.memory_system import MemorySystem
from tests.support.thread_driver import Incident, ThreadDriver
from tests.support.thread_rows import Rows, check_rows
from tests.support.watching import WatchedTool

T = TypeVar("T")

TOOLS = {
    tool.name: tool
    for tool in (
        WatchedTool(name="echo", effect=Effect.READ),
        WatchedTool(name="other", effect=Effect.READ),
        WatchedTool(name="failing", effect=Effect.READ, fails=True),
        WatchedTool(name="gated", effect=Effect.UNSAFE),
        WatchedTool(name="asking", effect=Effect.UNSAFE, asks=1),
        WatchedTool(
            name="deciding",
            effect=Effect.UNSAFE,
            asks=1,
            mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        ),
        WatchedTool(
            name="passing", effect=Effect.UNSAFE, asks=1, mode=ResumeMode.PASS_DECISION_TO_TOOL
        ),
    )
}
SPEC = AgentSpec(
    id=AgentId("tester"),
    model="scripted",
    tools=tuple(TOOLS),
    approval=("gated",),
    system_prompt="You are a test.",
)


class ScriptedRun(ThreadDriver):
    """One run in memory; records the requests to the model."""

    def __init__(self, *, max_rounds: int = 8) -> None:
        spec = replace(SPEC, max_rounds=max_rounds)
        super().__init__(MemorySystem(spec), spec, {**TOOLS})
        self.requests: list[ModelRequest] = []
        self.rows: Rows

    def _script(self, request: ModelRequest) -> ScriptedTurn:
        self.requests.append(request)
        return super()._script(request)

    async def run_turns(
        self, *turns: ScriptedTurn, incidents: Sequence[Incident] = (), parallel: bool = False
    ) -> Rows:
        """Start the run and execute it until it ends or suspends."""
        await self.start(turns, here=True, parallel=parallel)
        return await self.continue_run(incidents)

    async def continue_run(self, incidents: Sequence[Incident] = ()) -> Rows:
        await self.execute(incidents)
        self.rows = await self.system.rows()
        check_rows(self.rows)
        return self.rows

    async def answer(self, action: Action, call: str = "c1", **more: Any) -> Rows:
        """Decide the ticket of a call, and execute the run."""
        [ticket] = [one for one in self.rows.open_tickets if one.call_id == call]
        answer = DecisionAnswer(action=action, **more)
        await self.system.decide(ticket, answer)
        self.reference.decided(ticket, answer)
        return await self.continue_run()


def run_async(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner() as runner:
        return runner.run(work)


def run_turns(
    *turns: ScriptedTurn, max_rounds: int = 8, incidents: Sequence[Incident] = ()
) -> Rows:
    """The rows of a run of these turns after it ended or suspended."""
    return run_async(ScriptedRun(max_rounds=max_rounds).run_turns(*turns, incidents=incidents))


def a_call(tool: str = "echo", id: str = "c1", arguments: JsonObject | None = None) -> Call:
    return Call(tool=tool, arguments=arguments or {}, id=CallId(id))


def types(rows: Rows) -> list[str]:
    """The types of the run's events without deltas."""
    kinds = [event["event_type"] for event in rows.of_run]
    return [kind for kind in kinds if not kind.endswith("_delta")]


def events(rows: Rows, kind: str) -> list[Event]:
    return [event for event in rows.of_run if event["event_type"] == kind]


def end(rows: Rows) -> Event:
    """The last event, which is the `run_finish`."""
    last = rows.of_run[-1]
    assert last["event_type"] == "run_finish"
    return last


def lifecycle(event: Event) -> JsonObject:
    """The lifecycle in a `state_snapshot`."""
    found: JsonObject = event["snapshot"]["extensions"]["__runtime.run_lifecycle"]
    return found


def texts(rows: Rows) -> list[tuple[str, str]]:
    return [(entry.message.role.value, entry.message.text) for entry in rows.log]
