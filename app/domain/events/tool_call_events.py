"""Events of a tool call, from the model's request to the result, and what its tool shows meanwhile.

One call: `tool_call_start < tool_call_delta* < tool_call_ready < tool_call_done | tool_call_resumed`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from app.domain.json_values import Json, JsonObject


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    event_type: ClassVar[str] = "tool_call_start"
    tool_call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    event_type: ClassVar[str] = "tool_call_delta"
    tool_call_id: str
    args_delta: str


@dataclass(frozen=True, slots=True)
class ToolCallReady:
    event_type: ClassVar[str] = "tool_call_ready"
    tool_call_id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class ToolCallCancel:
    """A call that was being streamed is dropped: it will not be made."""

    event_type: ClassVar[str] = "tool_call_cancel"
    tool_call_id: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolCallStreamDelta:
    event_type: ClassVar[str] = "tool_call_stream_delta"
    tool_call_id: str
    name: str
    delta: str


@dataclass(frozen=True, slots=True)
class ToolCallDone:
    """A call has a result, or it is suspended: then `ticket_id` names the ticket that it waits for.

    `started_at` is when the call was handed to its tool, and `duration_ms` how long that took. They are missing
    for a call that this process didn't execute.
    """

    event_type: ClassVar[str] = "tool_call_done"
    tool_call_id: str
    message_id: str
    result: JsonObject
    ticket_id: str | None = None
    started_at: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToolCallResumed:
    """A call that was suspended has its result. `started_at` and `duration_ms` are as in `tool_call_done`."""

    event_type: ClassVar[str] = "tool_call_resumed"
    tool_call_id: str
    message_id: str
    result: JsonObject
    started_at: str | None = None
    duration_ms: int | None = None


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


@dataclass(frozen=True, slots=True)
class ArtifactSaved:
    """A tool saved a file. It may come at any moment before the end of its call or background task."""

    event_type: ClassVar[str] = "artifact_saved"
    tool_call_id: str
    file_id: str
    name: str
    media_type: str
    size: int
    sha256: str


TOOL_OUTPUT = (ToolCallStreamDelta, ActivitySnapshot, ActivityDelta)
"""What tools show before they return a result."""
