"""One turn of a remote agent without a run: a backend and an emitter."""

from dataclasses import dataclass, field

from app.backends.base import Factory, Turn
from app.clock import new_id
from app.domain.agents.backend_results import BackendResult
from app.domain.agents.endpoints import Endpoint
from app.domain.ids import AgentId, MessageId, RunId, ThreadId
from app.domain.json_values import Json, JsonObject
from app.domain.threads.messages import Block, Message, Role, Text


@dataclass(slots=True)
class RecordedTurn:
    """An emitter that records the events of a turn."""

    emitted: list[str] = field(default_factory=list)

    async def bind(self, binding: JsonObject) -> None: ...

    def text(self, delta: str) -> None:
        self.emitted.append(delta)

    def start_over(self, reason: str) -> None: ...

    def activity(self, activity_type: str, content: Json) -> None: ...

    async def wait_for_capacity(self) -> None: ...


async def turn_at(factory: Factory, endpoint: Endpoint, *blocks: Block) -> BackendResult:
    """One turn of the agent at this endpoint."""
    backend = factory.build(endpoint, {})
    run_id, content = RunId(new_id()), blocks or (Text("say hello"),)
    message = Message(id=MessageId(new_id()), role=Role.USER, content=content)
    turn = Turn(
        agent_id=AgentId("far"),
        run_id=run_id,
        thread_id=ThreadId(new_id()),
        key=f"{run_id}:1",
        messages=[message],
        new_messages=[message],
    )
    try:
        return await backend.execute_root(turn, RecordedTurn())
    finally:
        await backend.aclose()
