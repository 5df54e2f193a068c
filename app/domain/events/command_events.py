"""Control events: what commands say about a run, at whatever moment they come."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias, get_args

from app.domain.json_values import JsonObject


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
class PauseRequested:
    """The run suspends at its next step border, or isn't executed if it waits, until it is resumed."""

    event_type: ClassVar[str] = "pause_requested"
    requested_by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PauseEnded:
    """The pause request was removed; the run may execute again."""

    event_type: ClassVar[str] = "pause_ended"
    ended_by: str


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


CommandEvent: TypeAlias = (
    RunCreated
    | TicketOpened
    | TicketDecided
    | TicketVoted
    | TicketReminder
    | TicketExpired
    | TicketVoid
    | CancelRequested
    | PauseRequested
    | PauseEnded
    | RollbackRequested
    | RolledBack
    | InputQueued
    | InputChanged
    | InputRetracted
    | InputsReordered
    | InputDelivered
)

TicketEvent: TypeAlias = (
    TicketOpened | TicketVoted | TicketDecided | TicketReminder | TicketExpired | TicketVoid
)
"""What the inbox says."""

RUN_CREATED = RunCreated.event_type
COMMAND_EVENTS = frozenset(event.event_type for event in get_args(CommandEvent))
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
