"""Signals: messages from outside that answer tickets of kind `event`, by a name and a key.

    delivering ──► answered | kept        kept ──► answered

A signal is durable before it answers anything. Each ticket is answered in a transaction of its own; what
a crash leaves undone is completed by another process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from app.domain.errors import EventWaitInvalid
from app.domain.ids import RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import Json, digest, storable_text

MAX_NAME_CHARACTERS = 200
MAX_KEY_CHARACTERS = 500
MAX_ID_CHARACTERS = 200
MAX_PAYLOAD_BYTES = 262_144
MAX_KEPT_PER_KEY = 100
"""Signals of one name and key that are kept at once."""
MAX_WAIT_SECONDS = 10 * 366 * 86_400.0

DECISION_ID_PREFIX = "signal:"
"""What the id of a decision begins with that a signal has made."""


class SignalStatus(StrEnum):
    """`delivering` has tickets to answer, `kept` waits for a ticket, `answered` has answered at least one."""

    DELIVERING = "delivering"
    KEPT = "kept"
    ANSWERED = "answered"


class SignalOutcome(StrEnum):
    """What came of a signal at one ticket."""

    PENDING = "pending"
    ANSWERED = "answered"
    PAYLOAD_MISMATCH = "payload_mismatch"
    ALREADY_DECIDED = "already_decided"
    EXPIRED = "expired"
    VOID = "void"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and storable_text(value) == value


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWait:
    """What a call waits for. `number` counts the waits of one call for the same name and key, from 0."""

    name: str
    key: str
    number: int = 0
    timeout: float | None = None
    """Seconds until the ticket expires; None: it doesn't."""

    def __post_init__(self) -> None:
        """Refuse what no signal could answer."""
        for what, text, longest in (
            ("name", self.name, MAX_NAME_CHARACTERS),
            ("key", self.key, MAX_KEY_CHARACTERS),
        ):
            if not _is_text(text) or not 0 < len(text) <= longest:
                raise EventWaitInvalid(f"the {what} of an event has 1 to {longest} characters")
        if self.timeout is not None and not 0 < self.timeout <= MAX_WAIT_SECONDS:
            raise EventWaitInvalid(
                f"timeout must be a number of seconds above 0, and at most {MAX_WAIT_SECONDS:.0f}"
            )


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """A payload that has come for a call."""

    payload: Json


def event_wait_from_json(raw: Mapping[str, Any]) -> EventWait:
    return EventWait(name=raw["name"], key=raw["key"], number=raw["number"], timeout=raw["timeout"])


def wait_message(wait: EventWait) -> str:
    """What the log and the ticket say of a call that waits."""
    return f"Waits for the event {wait.name!r} with the key {wait.key!r}"


def timeout_message(name: str, key: str) -> str:
    """What a tool, or the model, reads when the event did not come."""
    return f"The event {name!r} with the key {key!r} did not come in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTicket:
    """A ticket that a signal has met, and what came of it. `problem` says why a payload doesn't fit."""

    ticket: TicketKey
    run_id: RunId
    thread_id: ThreadId
    outcome: SignalOutcome
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSignal:
    signal: Signal
    fingerprint: str
    status: SignalStatus
    kept_until: datetime
    created_at: datetime
    tickets: tuple[SignalTicket, ...] = ()
    """Those that waited when the signal was sent."""
    answer: SignalStatus | None = None
    """What the sender was told; it stays the same when a later ticket takes a kept signal."""


def status_of_delivery(tickets: Sequence[SignalTicket]) -> SignalStatus:
    """What a signal has come to at the tickets that it was sent to."""
    outcomes = {each.outcome for each in tickets}
    if SignalOutcome.PENDING in outcomes:
        return SignalStatus.DELIVERING
    if SignalOutcome.ANSWERED in outcomes:
        return SignalStatus.ANSWERED
    return SignalStatus.KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverSignal:
    """A queued job: complete a signal that was sent."""

    tenant: Tenant
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchWait:
    """A queued job: let a ticket take the oldest kept signal that fits it."""

    tenant: Tenant
    run_id: RunId
    ticket: TicketKey


SignalJob = DeliverSignal | MatchWait
