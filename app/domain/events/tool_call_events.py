"""Events of a tool call, from the model's request to the result, and what its tool shows meanwhile.

One call: `tool_call_start < tool_call_delta* < tool_call_ready < tool_call_done | tool_call_resumed`.
"""

from typing import Any, ClassVar

from msgspec import Struct

from app.domain.json_values import Json, JsonObject


class ToolCallStart(Struct, frozen=True):
    """The model began a tool call."""

    event_type: ClassVar[str] = "tool_call_start"
    tool_call_id: str
    name: str


class ToolCallDelta(Struct, frozen=True):
    """The model sent a piece of the call's arguments."""

    event_type: ClassVar[str] = "tool_call_delta"
    tool_call_id: str
    args_delta: str


class ToolCallReady(Struct, frozen=True):
    """The call's arguments are complete."""

    event_type: ClassVar[str] = "tool_call_ready"
    tool_call_id: str
    name: str
    arguments: Json


class ToolCallCancel(Struct, frozen=True):
    """A call that was being streamed is dropped: it will not be made."""

    event_type: ClassVar[str] = "tool_call_cancel"
    tool_call_id: str
    name: str
    reason: str


class ToolCallStreamDelta(Struct, frozen=True):
    """A tool showed output before its result."""

    event_type: ClassVar[str] = "tool_call_stream_delta"
    tool_call_id: str
    name: str
    delta: str


class ToolCallDone(Struct, frozen=True):
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


class ToolCallResumed(Struct, frozen=True):
    """A call that was suspended has its result. `started_at` and `duration_ms` are as in `tool_call_done`."""

    event_type: ClassVar[str] = "tool_call_resumed"
    tool_call_id: str
    message_id: str
    result: JsonObject
    started_at: str | None = None
    duration_ms: int | None = None


class ActivitySnapshot(Struct, frozen=True):
    """A tool, a background task, a child run or a remote agent shows what it is doing."""

    event_type: ClassVar[str] = "activity_snapshot"
    message_id: str
    activity_type: str
    content: Json
    replace: bool | None = None


class ActivityDelta(Struct, frozen=True):
    """A JSON Patch of the last `activity_snapshot` with the same `message_id`."""

    event_type: ClassVar[str] = "activity_delta"
    message_id: str
    activity_type: str
    patch: list[Any]


class ArtifactSaved(Struct, frozen=True):
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
