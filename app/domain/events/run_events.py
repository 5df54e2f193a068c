"""AgentEvents: everything that a run says, one type per variant.

On the wire an event is one flat object: the envelope (`seq ts thread_id run_id step event_type`) and
then the variant's own fields, absent ones left out. Fields hold JSON-ready values.

Within an activation: `run_start` first, `run_finish` last; `step_start … step_end` never interleave;
for one call `tool_call_start < tool_call_delta* < tool_call_ready < tool_call_done | tool_call_resumed`;
all `tool_call_ready` of a step before its `inference_complete`. Control events may stand anywhere, and
so may what background tasks show of themselves (`activity_*` without a step) until the run is done.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from app.domain.events.command_events import CommandEvent, TicketEvent
from app.domain.json_values import Json, JsonObject

# --- lifecycle ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStart:
    event_type: ClassVar[str] = "run_start"
    identity: JsonObject
    parent_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class RunFinish:
    event_type: ClassVar[str] = "run_finish"
    identity: JsonObject
    termination: JsonObject
    result: JsonObject | None = None
    waiting: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class StepStart:
    event_type: ClassVar[str] = "step_start"
    message_id: str


@dataclass(frozen=True, slots=True)
class StepEnd:
    event_type: ClassVar[str] = "step_end"


# --- inference ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextDelta:
    event_type: ClassVar[str] = "text_delta"
    delta: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    event_type: ClassVar[str] = "reasoning_delta"
    delta: str


@dataclass(frozen=True, slots=True)
class ReasoningEncryptedValue:
    event_type: ClassVar[str] = "reasoning_encrypted_value"
    encrypted_value: str


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
    """A call that was being streamed will not come."""

    event_type: ClassVar[str] = "tool_call_cancel"
    id: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class StreamReset:
    """Forget every frame since this step's `step_start`."""

    event_type: ClassVar[str] = "stream_reset"
    reason: str


@dataclass(frozen=True, slots=True)
class InferenceComplete:
    event_type: ClassVar[str] = "inference_complete"
    model: str
    duration_ms: int
    usage: JsonObject | None = None


# --- tools ----------------------------------------------------------------------------------------


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


# --- state ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    event_type: ClassVar[str] = "state_snapshot"
    snapshot: JsonObject


@dataclass(frozen=True, slots=True)
class StateDelta:
    event_type: ClassVar[str] = "state_delta"
    delta: list[Any]


@dataclass(frozen=True, slots=True)
class MessagesSnapshot:
    event_type: ClassVar[str] = "messages_snapshot"
    messages: list[Any]


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """Something went wrong on the way to the client. Has no id and ends nothing."""

    event_type: ClassVar[str] = "error"
    message: str
    code: str | None = None


AgentEvent: TypeAlias = (
    CommandEvent
    | RunStart
    | RunFinish
    | StepStart
    | StepEnd
    | TextDelta
    | ReasoningDelta
    | ReasoningEncryptedValue
    | ToolCallStart
    | ToolCallDelta
    | ToolCallReady
    | ToolCallCancel
    | StreamReset
    | InferenceComplete
    | ToolCallStreamDelta
    | ToolCallDone
    | ToolCallResumed
    | ActivitySnapshot
    | ActivityDelta
    | StateSnapshot
    | StateDelta
    | MessagesSnapshot
    | ErrorEvent
)

RUN_START = RunStart.event_type
RUN_FINISH = RunFinish.event_type
STEP_START = StepStart.event_type
STEP_END = StepEnd.event_type
TOOL_OUTPUT = (ToolCallStreamDelta, ActivitySnapshot, ActivityDelta)
"""What tools show before their result is there."""
DELTA_EVENTS = frozenset(
    event.event_type for event in (TextDelta, ReasoningDelta, ToolCallDelta, ToolCallStreamDelta)
)


def event_fields(event: AgentEvent | TicketEvent) -> dict[str, Any]:
    """The variant's own fields, absent ones left out; `tool_call_resumed.result` may be null."""
    keep_null = isinstance(event, ToolCallResumed | ToolCallReady)
    body = {field.name: getattr(event, field.name) for field in fields(event)}
    return body if keep_null else {key: value for key, value in body.items() if value is not None}
