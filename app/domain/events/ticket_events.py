"""Events of a ticket, emitted when it is opened, answered, about to expire, expired or voided.

`ticket_id` is the ticket's id. The opened, decided, expired and void events are also on the streams of the runs
above the ticket's run. There they have `child`: the ticket's run, with its thread and agent.
"""

from typing import ClassVar

from msgspec import Struct

from app.domain.json_values import JsonObject


class TicketOpened(Struct, frozen=True):
    """A call needs an answer. The ticket is committed with the run's suspension."""

    event_type: ClassVar[str] = "ticket_opened"
    ticket: JsonObject
    child: JsonObject | None = None


class TicketDecided(Struct, frozen=True):
    """A ticket has its decision."""

    event_type: ClassVar[str] = "ticket_decided"
    ticket_id: str
    decision_id: str
    action: str
    decided_by: str
    reason: str | None = None
    child: JsonObject | None = None


class TicketVoted(Struct, frozen=True):
    """An answer to a ticket that needs several: it decides the ticket once enough people agree."""

    event_type: ClassVar[str] = "ticket_voted"
    ticket_id: str
    decision_id: str
    action: str
    decided_by: str
    reason: str | None = None
    votes_missing: int | None = None


class TicketReminder(Struct, frozen=True):
    """The ticket is still open after half of its time, after nine tenths of it, or after all of it."""

    event_type: ClassVar[str] = "ticket_reminder"
    ticket_id: str
    expires_at: str
    seconds_left: float


class TicketExpired(Struct, frozen=True):
    """The ticket wasn't answered in time. That isn't a denial."""

    event_type: ClassVar[str] = "ticket_expired"
    ticket_id: str
    on_expiry: str
    child: JsonObject | None = None


class TicketVoid(Struct, frozen=True):
    """The ticket needs no answer any more: a remote agent got it elsewhere, or a child run has ended. If the
    ticket's own run is done, only the inbox and the runs above it publish this event."""

    event_type: ClassVar[str] = "ticket_void"
    ticket_id: str
    child: JsonObject | None = None
