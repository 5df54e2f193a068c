"""Everything that can go wrong, as one tree.

HoldfastError
├── Refusal                 a command or query that is answered with "no"; nothing was changed
│   ├── Invalid             the request can't be understood or breaks a schema
│   ├── Unreadable          the body isn't what its kind says
│   ├── BadCursor           a cursor or last-event-id that isn't one
│   ├── Unauthenticated     nobody knows who is asking
│   ├── Forbidden           known, but not allowed
│   ├── NotFound            doesn't exist, or belongs to somebody else: the same answer
│   ├── Conflict            true as a request, but not in this state
│   ├── Gone                was there once
│   ├── DigestMismatch      the caller quoted something that has changed
│   ├── TooLarge            over a bound
│   ├── UnsupportedMedia    a body of a kind that isn't read
│   ├── TooMany             over a limit that passes
│   └── Unavailable         not now
├── AnsweredBefore          the request is a repetition: this is its first answer
├── ConfigurationError      settings, agents or tools that can't work; found at start
├── DatabaseUnusable        unreachable, too old or not migrated
├── DatabaseAway            something passes, and the same may work in a moment
│   └── DatabaseBusy        all connections are in use
├── InferenceFailed         a model didn't answer
├── StateError              a key, an update or a stored value that the state can't take
├── PluginFailed            a plugin's hook raised, or asked for what its phase doesn't offer
├── EventTimedOut           the event that a tool waited for did not come in time
├── EventWaitInvalid        a tool waits for what no signal could answer
├── OutputOverflow          a tool shows more than can be saved, and doesn't wait
└── OwnershipLost           this worker no longer owns the run: stop, write nothing
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from app.domain.idempotency import KeptAnswer


class HoldfastError(Exception):
    """Root of the tree; never raised itself."""


class Refusal(HoldfastError):
    """An answer of "no" with a stable code, a sentence that says what to do, and facts for programs."""

    def __init__(self, code: str, detail: str, **facts: Any) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.facts: Mapping[str, Any] = facts


class Invalid(Refusal):
    pass


class Unreadable(Refusal):
    pass


class BadCursor(Refusal):
    pass


class Unauthenticated(Refusal):
    pass


class Forbidden(Refusal):
    pass


class NotFound(Refusal):
    pass


class Conflict(Refusal):
    pass


class Gone(Refusal):
    pass


class DigestMismatch(Refusal):
    pass


class TooLarge(Refusal):
    pass


class UnsupportedMedia(Refusal):
    pass


class TooMany(Refusal):
    pass


class Unavailable(Refusal):
    pass


class AlreadyAnswered(HoldfastError):
    """A request under this key had its effect before; nothing was changed now."""

    def __init__(self, answer: KeptAnswer) -> None:
        super().__init__(f"answered before, with status {answer.status}")
        self.answer = answer


class ConfigurationError(HoldfastError):
    """A file or setting that can't work: the message names the place, the key and the remedy."""


class DatabaseUnusable(HoldfastError):
    """The database can't be used; the message is one sentence that says what to do."""


class UnavailableReason(StrEnum):
    """Why a database can't be used for now; part of what clients, probes and metrics are told."""

    UNREACHABLE = "unreachable"
    SILENT = "silent"
    """It took the statement, and never answered."""
    BUSY = "busy"
    """All connections of this process are in use."""
    TOO_MANY_CONNECTIONS = "too_many_connections"
    READ_ONLY = "read_only"
    DISK_FULL = "disk_full"
    OUT_OF_RESOURCES = "out_of_resources"
    LOCKED = "locked"
    """Somebody else holds what the statement needs, or had to be given way to."""
    TOO_SLOW = "too_slow"


class DatabaseUnavailable(HoldfastError):
    """The database didn't answer; nothing is known of the statement but that it may be tried again."""

    def __init__(
        self, detail: str = "", reason: UnavailableReason = UnavailableReason.UNREACHABLE
    ) -> None:
        super().__init__(detail)
        self.reason = reason


class DatabaseBusy(DatabaseUnavailable):
    """No connection got free in time; nothing was asked of the database."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, UnavailableReason.BUSY)


class EventTimedOut(HoldfastError):
    """The event that a tool waited for did not come in time. The tool may catch this and go on."""


class EventWaitInvalid(HoldfastError):
    """A tool waits with a name, key, schema or timeout that no signal could answer."""


class OutputOverflow(HoldfastError):
    def __init__(self) -> None:
        super().__init__(
            "the call shows more than can be saved at the moment: its tasks should `await ctx.room()` "
            "between pieces"
        )


class OwnershipLost(HoldfastError):
    """Another worker owns the run now. Whoever catches this drops what it has and writes nothing."""


class InferenceFailed(HoldfastError):
    """A model call failed. `retryable` says whether the same call may succeed later."""

    def __init__(
        self, kind: str, detail: str, *, retryable: bool, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.retryable = retryable
        self.retry_after = retry_after


class StateError(HoldfastError):
    """The state can't take a key, an update or a stored value; nothing was changed."""


class PluginFailed(HoldfastError):
    """A plugin broke: its run ends with this as its error."""

    def __init__(self, plugin: str, phase: str, detail: str) -> None:
        super().__init__(f"plugin {plugin!r} failed in phase {phase!r}: {detail}")
        self.plugin = plugin
        self.phase = phase
