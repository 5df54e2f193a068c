"""A write of a tool call to the memory."""

from typing import Literal

from msgspec import Struct

from app.domain.ids import AgentId
from app.domain.json_values import Json


class MemoryWrite(Struct, frozen=True, kw_only=True):
    """One write of a call. It is done once, also if the call runs again after a crash."""

    idempotency_key: str
    """That of the call: the same for each of its executions."""
    agent_id: AgentId
    """The agent whose tool writes."""
    operation: Literal["set", "delete"]
    key: str
    value: Json = None
    number: int = 1
    """Counts equal writes of one execution, so that a call may set a value, another one, and the first again."""
