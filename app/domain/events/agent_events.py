"""AgentEvents: the union of all events of a run, and the groups of them that readers tell apart.

On the wire an event is one flat object: the envelope (`seq ts thread_id run_id step event_type`) and
then the event's own fields, without absent ones. Fields hold JSON-ready values.

The executing worker emits its events in order. Two groups may come at any moment: events of commands,
and, until the run is done, the activities of background tasks (`activity_*` without a step).
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, get_args

from app.domain.events.input_events import (
    InputChanged,
    InputDelivered,
    InputQueued,
    InputRetracted,
)
from app.domain.events.run_events import (
    CancelRequested,
    PauseEnded,
    PauseRequested,
    RollbackRequested,
    RolledBack,
    RunCreated,
    RunFinish,
    RunStart,
    StateSnapshot,
)
from app.domain.events.step_events import (
    InferenceComplete,
    InferenceRetry,
    MessageDone,
    ReasoningDelta,
    ReasoningEncryptedValue,
    StepEnd,
    StepStart,
    StreamReset,
    TextDelta,
)
from app.domain.events.ticket_events import (
    TicketDecided,
    TicketExpired,
    TicketOpened,
    TicketReminder,
    TicketVoid,
    TicketVoted,
)
from app.domain.events.tool_call_events import (
    ActivityDelta,
    ActivitySnapshot,
    ArtifactSaved,
    ToolCallCancel,
    ToolCallDelta,
    ToolCallDone,
    ToolCallReady,
    ToolCallResumed,
    ToolCallStart,
    ToolCallStreamDelta,
)

TicketEvent: TypeAlias = (
    TicketOpened | TicketVoted | TicketDecided | TicketReminder | TicketExpired | TicketVoid
)
"""What the inbox publishes."""

CommandEvent: TypeAlias = (
    RunCreated
    | TicketEvent
    | CancelRequested
    | PauseRequested
    | PauseEnded
    | RollbackRequested
    | RolledBack
    | InputQueued
    | InputChanged
    | InputRetracted
    | InputDelivered
    | ArtifactSaved
)
"""Events that may come at any moment, because commands emit them beside the executing worker. A tool that saves a
file is such a command."""

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
    | InferenceRetry
    | InferenceComplete
    | MessageDone
    | ToolCallStreamDelta
    | ToolCallDone
    | ToolCallResumed
    | ActivitySnapshot
    | ActivityDelta
    | StateSnapshot
)

COMMAND_EVENTS = frozenset(event.event_type for event in get_args(CommandEvent))
TICKET_EVENTS = frozenset(event.event_type for event in (*get_args(TicketEvent), CancelRequested))
"""Events after which a ticket may have changed: a cancel voids the open ones."""
STATUS_EVENTS = TICKET_EVENTS | {
    event.event_type for event in (RunCreated, RunStart, RunFinish, PauseRequested, PauseEnded)
}
"""Events after which a run may have another status."""
DELTA_EVENTS = frozenset(
    event.event_type for event in (TextDelta, ReasoningDelta, ToolCallDelta, ToolCallStreamDelta)
)


_FIELD_NAMES: Mapping[str, Sequence[str]] = {
    event.event_type: event.__struct_fields__
    for event in (*get_args(AgentEvent), *get_args(TicketEvent))
}


def event_fields(event: AgentEvent | TicketEvent) -> dict[str, Any]:
    """The event's own fields without absent ones; `tool_call_ready.arguments` may be null."""
    names = _FIELD_NAMES[event.event_type]
    if isinstance(event, ToolCallReady):
        return {name: getattr(event, name) for name in names}
    return {name: value for name in names if (value := getattr(event, name)) is not None}
