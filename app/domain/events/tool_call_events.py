"""Events of a tool call, from the model's request to the result, and what its tool shows meanwhile.

One call: `tool_call_start < tool_call_delta* < tool_call_ready < tool_call_done | tool_call_resumed`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from app.domain.json_values import Json, JsonObject


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    event_type: ClassVar[str] = "tool_call_start"
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    event_type: ClassVar[str] = "tool_call_delta"
    id: str
    args_delta: str


@dataclass(frozen=True, slots=True)
class ToolCallReady:
    event_type: ClassVar[str] = "tool_call_ready"
    id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class ToolCallCancel:
    """A call that was being streamed is dropped: it will not be made."""

    event_type: ClassVar[str] = "tool_call_cancel"
    id: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolCallStreamDelta:
    event_type: ClassVar[str] = "tool_call_stream_delta"
    id: str
    name: str
    delta: str


@dataclass(frozen=True, slots=True)
class ToolCallDone:
    event_type: ClassVar[str] = "tool_call_done"
    id: str
    message_id: str
    result: JsonObject
    outcome: str


@dataclass(frozen=True, slots=True)
class ToolCallResumed:
    event_type: ClassVar[str] = "tool_call_resumed"
    target_id: str
    result: Json


@dataclass(frozen=True, slots=True)
class ActivitySnapshot:
    event_type: ClassVar[str] = "activity_snapshot"
    message_id: str
    activity_type: str
    content: Json
    replace: bool | None = None


@dataclass(frozen=True, slots=True)
class ActivityDelta:
    event_type: ClassVar[str] = "activity_delta"
    message_id: str
    activity_type: str
    patch: list[Any]


TOOL_OUTPUT = (ToolCallStreamDelta, ActivitySnapshot, ActivityDelta)
"""What tools show before they return a result."""
