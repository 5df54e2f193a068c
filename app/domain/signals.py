"""Signals: messages from outside that answer tickets of kind `event`, by a name and a key.

    delivering ──► answered | kept        kept ──► answered

A signal is durable before it answers a ticket. Each ticket is answered in its own transaction. After a
crash another process completes the delivery.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from app.domain.errors import EventWaitInvalid
from app.domain.ids import RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import Json, digest, storable_text

MAX_NAME_CHARACTERS = 200
MAX_KEY_CHARACTERS = 500
MAX_ID_CHARACTERS = 200
MAX_PAYLOAD_BYTES = 262_144
MAX_KEPT_PER_KEY = 100
"""The most kept signals of one name and key."""
MAX_WAIT_SECONDS = 10 * 366 * 86_400.0

DECISION_ID_PREFIX = "signal:"
"""Prefix of the ids of decisions that a signal made."""


class SignalStatus(StrEnum):
    """`delivering` has tickets to answer, `kept` waits for a ticket, `answered` answered at least one."""

    DELIVERING = "delivering"
    KEPT = "kept"
    ANSWERED = "answered"


class SignalOutcome(StrEnum):
    """The result of a signal at one ticket."""

    PENDING = "pending"
    ANSWERED = "answered"
    PAYLOAD_MISMATCH = "payload_mismatch"
    ALREADY_DECIDED = "already_decided"
    EXPIRED = "expired"
    VOID = "void"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and storable_text(value) == value


class EventWait(Struct, frozen=True, kw_only=True):
    """The event that a call waits for. `number` counts one call's waits for the same name and key, from 0."""

    name: str
    key: str
    number: int = 0
    timeout: float | None = None
    """Seconds until the ticket expires; None for never."""

    def __post_init__(self) -> None:
        """Raise for a wait that no signal could answer."""
        for field_name, text, max_characters in (
            ("name", self.name, MAX_NAME_CHARACTERS),
            ("key", self.key, MAX_KEY_CHARACTERS),
        ):
            if not _is_text(text) or not 0 < len(text) <= max_characters:
                raise EventWaitInvalid(
                    f"the {field_name} of an event has 1 to {max_characters} characters"
                )
        if self.timeout is not None and not 0 < self.timeout <= MAX_WAIT_SECONDS:
            raise EventWaitInvalid(
                f"timeout must be a number of seconds above 0, and at most {MAX_WAIT_SECONDS:.0f}"
            )


class ReceivedEvent(Struct, frozen=True):
    """The payload of an event that a call waited for."""

    payload: Json


def event_wait_from_json(raw: Mapping[str, Any]) -> EventWait:
    return EventWait(name=raw["name"], key=raw["key"], number=raw["number"], timeout=raw["timeout"])


def wait_message(wait: EventWait) -> str:
    """The message of a waiting call, in the log and on its ticket."""
    return f"Waits for the event {wait.name!r} with the key {wait.key!r}"


def timeout_message(name: str, key: str) -> str:
    """The message for the tool or the model if the event did not come."""
    return f"The event {name!r} with the key {key!r} did not come in time"


class Signal(Struct, frozen=True, kw_only=True):
    """`id` is the sender's: the same id is delivered once."""

    tenant: Tenant
    id: str
    name: str
    key: str
    payload: Json
    sent_by: str

    @property
    def fingerprint(self) -> str:
        return digest([self.name, self.key, self.payload])

    @property
    def decision_id(self) -> str:
        return f"{DECISION_ID_PREFIX}{self.id}"


class SignalTicket(Struct, frozen=True, kw_only=True):
    """A ticket that a signal was delivered to, and the result. `problem` says why a payload doesn't fit."""

    ticket: TicketKey
    run_id: RunId
    thread_id: ThreadId
    outcome: SignalOutcome
    problem: str | None = None


class StoredSignal(Struct, frozen=True, kw_only=True):
    signal: Signal
    fingerprint: str
    status: SignalStatus
    kept_until: datetime
    created_at: datetime
    tickets: tuple[SignalTicket, ...] = ()
    """The tickets that waited when the signal was sent."""
    response_status: SignalStatus | None = None
    """The status in the sender's response; it stays when a later ticket takes a kept signal."""


def status_of_delivery(tickets: Sequence[SignalTicket]) -> SignalStatus:
    """The signal's status after its delivery to these tickets."""
    outcomes = {each.outcome for each in tickets}
    if SignalOutcome.PENDING in outcomes:
        return SignalStatus.DELIVERING
    if SignalOutcome.ANSWERED in outcomes:
        return SignalStatus.ANSWERED
    return SignalStatus.KEPT


class DeliverSignal(Struct, frozen=True, kw_only=True):
    """A queued job: complete the delivery of a signal."""

    tenant: Tenant
    id: str


class MatchWait(Struct, frozen=True, kw_only=True):
    """A queued job: answer a ticket with the oldest kept signal that fits it."""

    tenant: Tenant
    run_id: RunId
    ticket: TicketKey


SignalJob = DeliverSignal | MatchWait
