"""Events of a ticket, emitted when it is opened, answered, about to expire, expired or voided."""

from dataclasses import dataclass
from typing import ClassVar

from app.domain.json_values import JsonObject


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
    """An answer to a ticket that needs several: it decides the ticket once enough people agree."""

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
    """The ticket is still open after half of its time, after nine tenths of it, or after all of it."""

    event_type: ClassVar[str] = "ticket_reminder"
    id: str
    ticket_id: str
    expires_at: str
    seconds_left: float


@dataclass(frozen=True, slots=True)
class TicketExpired:
    """The ticket wasn't answered in time. That isn't a denial."""

    event_type: ClassVar[str] = "ticket_expired"
    id: str
    ticket_id: str
    on_expiry: str


@dataclass(frozen=True, slots=True)
class TicketVoid:
    """The ticket needs no answer any more: a remote agent got it elsewhere. If the run is done, only
    the inbox publishes this event."""

    event_type: ClassVar[str] = "ticket_void"
    id: str
    ticket_id: str
