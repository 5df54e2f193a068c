"""Events of a ticket, emitted when it is opened, answered, about to expire, expired or voided.

`ticket_id` is the ticket's id. The opened, decided, expired and void events are also on the streams of the runs
above the ticket's run. There they have `child`: the ticket's run, with its thread and agent.
"""

from dataclasses import dataclass
from typing import ClassVar

from app.domain.json_values import JsonObject


@dataclass(frozen=True, slots=True)
class TicketOpened:
    event_type: ClassVar[str] = "ticket_opened"
    ticket: JsonObject
    child: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class TicketDecided:
    event_type: ClassVar[str] = "ticket_decided"
    ticket_id: str
    decision_id: str
    action: str
    decided_by: str
    reason: str | None = None
    child: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class TicketVoted:
    """An answer to a ticket that needs several: it decides the ticket once enough people agree."""

    event_type: ClassVar[str] = "ticket_voted"
    ticket_id: str
    decision_id: str
    action: str
    decided_by: str
    reason: str | None = None
    votes_missing: int | None = None


@dataclass(frozen=True, slots=True)
class TicketReminder:
    """The ticket is still open after half of its time, after nine tenths of it, or after all of it."""

    event_type: ClassVar[str] = "ticket_reminder"
    ticket_id: str
    expires_at: str
    seconds_left: float


@dataclass(frozen=True, slots=True)
class TicketExpired:
    """The ticket wasn't answered in time. That isn't a denial."""

    event_type: ClassVar[str] = "ticket_expired"
    ticket_id: str
    on_expiry: str
    child: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class TicketVoid:
    """The ticket needs no answer any more: a remote agent got it elsewhere, or a child run has ended. If the
    ticket's own run is done, only the inbox and the runs above it publish this event."""

    event_type: ClassVar[str] = "ticket_void"
    ticket_id: str
    child: JsonObject | None = None
