"""AgentEvents: everything that a run says, one type per variant.

On the wire an event is one flat object: the envelope (`seq ts thread_id run_id step event_type`) and
then the variant's own fields, absent ones left out. Fields hold JSON-ready values.

Within an activation: `run_start` first, `run_finish` last; `step_start … step_end` never interleave;
for one call `tool_call_start < tool_call_delta* < tool_call_ready < tool_call_done | tool_call_resumed`;
all `tool_call_ready` of a step before its `inference_complete`. Control events (`run_created`,
`ticket_*`, `cancel_requested`, `rollback_requested`, `rolled_back`, `input_*`, `inputs_reordered`) may stand anywhere, and so may what background tasks
show of themselves (`activity_*` without a step) until the run is done.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from app.domain.json_values import Json, JsonObject, compact

# --- control: said by commands --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunCreated:
    """First event of a run. `position` counts the runs before it on the thread."""

    event_type: ClassVar[str] = "run_created"
    agent_id: str
    status: str
    position: int
    input_message_ids: list[str]


@dataclass(frozen=True, slots=True)
class TicketOpened:
    event_type: ClassVar[str] = "ticket_opened"
    ticket: JsonObject


@dataclass(frozen=True, slots=True)
class TicketDecided:
    event_type: ClassVar[str] = "ticket_decided"
    id: str
    ticket_id: str
    decision_id: str
    action: str
    decided_by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TicketVoted:
    """An answer that counts once enough people have given it."""

    event_type: ClassVar[str] = "ticket_voted"
    id: str
    ticket_id: str
    decision_id: str
    action: str
    decided_by: str
    reason: str | None = None
    votes_missing: int | None = None


@dataclass(frozen=True, slots=True)
class TicketReminder:
    """Somebody should answer: half of the time is over, then nine tenths of it, then all."""

    event_type: ClassVar[str] = "ticket_reminder"
    id: str
    ticket_id: str
    expires_at: str
    seconds_left: float


@dataclass(frozen=True, slots=True)
class TicketExpired:
    """Nobody has answered in time. That isn't a denial."""

    event_type: ClassVar[str] = "ticket_expired"
    id: str
    ticket_id: str
    on_expiry: str


@dataclass(frozen=True, slots=True)
class TicketVoid:
    """Nobody needs to answer any more: a remote agent was answered elsewhere. Of a run that is done only the
    inbox says it."""

    event_type: ClassVar[str] = "ticket_void"
    id: str
    ticket_id: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    event_type: ClassVar[str] = "cancel_requested"
    requested_by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RollbackRequested:
    """Once the run has ended, what it has added to the conversation won't count for the one named."""

    event_type: ClassVar[str] = "rollback_requested"
    requested_by: str
    by_run_id: str


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The run is about to end, and this stretch of the log doesn't count any more; without one it had
    added nothing."""

    event_type: ClassVar[str] = "rolled_back"
    by_run_id: str
    from_seq: int | None = None
    to_seq: int | None = None


@dataclass(frozen=True, slots=True)
class InputQueued:
    event_type: ClassVar[str] = "input_queued"
    input_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class InputChanged:
    """Another message stands in its place, under the same ids."""

    event_type: ClassVar[str] = "input_changed"
    input_id: str
    message_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class InputRetracted:
    """Whoever has sent it has taken it back. What a run leaves unread at its end isn't told one by one."""

    event_type: ClassVar[str] = "input_retracted"
    input_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class InputsReordered:
    """What waits for the run, in its new order. `position` counts the runs before it on the thread."""

    event_type: ClassVar[str] = "inputs_reordered"
    input_ids: list[str]
    position: int


@dataclass(frozen=True, slots=True)
class InputDelivered:
    """It stands in the log from now on, and its run has it."""

    event_type: ClassVar[str] = "input_delivered"
    input_id: str
    message_id: str
    message_seq: int


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
    RunCreated
    | TicketOpened
    | TicketDecided
    | TicketVoted
    | TicketReminder
    | TicketExpired
    | TicketVoid
    | CancelRequested
    | RollbackRequested
    | RolledBack
    | InputQueued
    | InputChanged
    | InputRetracted
    | InputsReordered
    | InputDelivered
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

TicketEvent: TypeAlias = (
    TicketOpened | TicketVoted | TicketDecided | TicketReminder | TicketExpired | TicketVoid
)
"""What the inbox says."""

RUN_CREATED = RunCreated.event_type
RUN_START = RunStart.event_type
RUN_FINISH = RunFinish.event_type
STEP_START = StepStart.event_type
STEP_END = StepEnd.event_type
CONTROL_EVENTS = frozenset(
    event.event_type
    for event in (
        RunCreated,
        TicketOpened,
        TicketDecided,
        TicketVoted,
        TicketReminder,
        TicketExpired,
        TicketVoid,
        CancelRequested,
        RollbackRequested,
        RolledBack,
        InputQueued,
        InputChanged,
        InputRetracted,
        InputsReordered,
        InputDelivered,
    )
)
TICKET_EVENTS = frozenset(
    event.event_type
    for event in (
        TicketOpened,
        TicketDecided,
        TicketVoted,
        TicketReminder,
        TicketExpired,
        TicketVoid,
        CancelRequested,
    )
)
"""What a thread says when something may have become of a ticket: a cancel voids those that are open."""
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


LARGEST_DELTA = 65_536
"""Characters of a delta that others are joined to: clients' parsers bound what an event may hold."""


def size_of(event: AgentEvent) -> int:
    """Bytes that an event holds, of those that a model or a tool may make as long and as many as it likes."""
    match event:
        case TextDelta() | ReasoningDelta() | ToolCallStreamDelta():
            return _bytes_of(event.delta)
        case ToolCallDelta():
            return _bytes_of(event.args_delta)
        case ActivitySnapshot():
            return _bytes_of(compact(event.content))
        case ActivityDelta():
            return _bytes_of(compact(event.patch))
        case _:
            return 0


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def merged(first: AgentEvent, second: AgentEvent) -> AgentEvent | None:
    """Two adjacent deltas of one message as one, or nothing when they aren't that, or too long."""
    match first, second:
        case TextDelta(a), TextDelta(b) if _is_short(a, b):
            return TextDelta(a + b)
        case ReasoningDelta(a), ReasoningDelta(b) if _is_short(a, b):
            return ReasoningDelta(a + b)
        case ToolCallDelta(id_a, a), ToolCallDelta(id_b, b) if id_a == id_b and _is_short(a, b):
            return ToolCallDelta(id_a, a + b)
        case ToolCallStreamDelta(id_a, name, a), ToolCallStreamDelta(id_b, _, b) if (
            id_a == id_b and _is_short(a, b)
        ):
            return ToolCallStreamDelta(id_a, name, a + b)
        case _:
            return None


def _is_short(a: str, b: str) -> bool:
    return len(a) + len(b) <= LARGEST_DELTA


@dataclass(frozen=True, slots=True)
class OpenParts:
    """What has been said of a message that isn't in the log yet."""

    text: str = ""
    calls: tuple[JsonObject, ...] = ()


def open_parts_of(said: Iterable[tuple[str, JsonObject]]) -> OpenParts:
    """The open message, from the events of the open step: type and fields of each."""
    text = ""
    calls: dict[str, dict[str, Any]] = {}
    for event_type, fields_ in said:
        match event_type:
            case StreamReset.event_type:
                text, calls = "", {}
            case TextDelta.event_type:
                text += fields_["delta"]
            case ToolCallStart.event_type:
                calls[fields_["id"]] = {
                    "id": fields_["id"],
                    "name": fields_["name"],
                    "arguments": "",
                }
            case ToolCallDelta.event_type:
                calls[fields_["id"]]["arguments"] += fields_["args_delta"]
            case ToolCallCancel.event_type | ToolCallDone.event_type:
                calls.pop(fields_["id"], None)
    return OpenParts(text, tuple(calls.values()))
