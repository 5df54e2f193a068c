"""The exceptions of the application, as one tree.

HoldfastError
├── Refusal                 a refused command or query; nothing was changed
│   ├── Invalid             the request can't be understood or breaks a schema
│   ├── Unreadable          the body doesn't match its content type
│   ├── BadCursor           an invalid cursor or last-event-id
│   ├── Unauthenticated     the caller is unknown
│   ├── Forbidden           known, but not allowed
│   ├── NotFound            doesn't exist, or belongs to another tenant: the same answer
│   ├── Conflict            a valid request, but not in this state
│   ├── Gone                existed once
│   ├── DigestMismatch      the caller quoted something that has changed
│   ├── TooLarge            over a size limit
│   ├── UnsupportedMedia    a content type that isn't supported
│   ├── TooMany             over a temporary limit
│   └── Unavailable         temporarily not possible
│       └── FilesUnavailable  the store of files doesn't answer
├── AlreadyAnswered         a repeated request, with its first answer
├── ConfigurationError      settings, agents or tools that can't work; found at start
├── DatabaseUnusable        unreachable, too old or not migrated
├── DatabaseUnavailable     a temporary failure; the same statement may work soon
│   └── DatabaseBusy        all connections are in use
├── BytesDeleted            the bytes of a file were deleted while they were read
├── InferenceFailed         a model call failed
├── StateError              the state refuses a key, an update or a stored value
├── PluginFailed            a plugin's hook raised, or made a request that its phase doesn't accept
├── EventTimedOut           the event of `wait_for` did not come in time
├── OutcomeUnknown          a tool was interrupted, and whether it took effect is unknown
├── MemoryUnavailable       an agent without memory, or a run that names no user
├── EventWaitInvalid        a `wait_for` that no signal could answer
├── OutputOverflow          a tool shows output faster than it can be saved, and doesn't wait
└── OwnershipLost           this worker no longer owns the run: stop, write nothing
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from app.domain.idempotency import StoredResponse


class HoldfastError(Exception):
    """Root of the tree; only its subclasses are raised."""


class Refusal(HoldfastError):
    """A refusal with a stable code, a sentence that says what to do, and facts for programs."""

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


class FilesUnavailable(Unavailable):
    """The bytes of files can't be read or written at the moment."""

    def __init__(self, detail: str) -> None:
        super().__init__("files_unavailable", detail)


class BytesDeleted(HoldfastError):
    """The bytes of a file were deleted before they were read."""


class AlreadyAnswered(HoldfastError):
    """A request with this idempotency key took effect before; nothing was changed now."""

    def __init__(self, answer: StoredResponse) -> None:
        super().__init__(f"answered before, with status {answer.status}")
        self.answer = answer


class ConfigurationError(HoldfastError):
    """An invalid file or setting: the message names the place, the key and the remedy."""


class DatabaseUnusable(HoldfastError):
    """The database can't be used; the message is one sentence that says what to do."""


class UnavailableReason(StrEnum):
    """Why the database is unavailable, as clients, probes and metrics show it."""

    UNREACHABLE = "unreachable"
    SILENT = "silent"
    """It accepted the statement and didn't answer in time."""
    BUSY = "busy"
    """All connections of this process are in use."""
    TOO_MANY_CONNECTIONS = "too_many_connections"
    READ_ONLY = "read_only"
    DISK_FULL = "disk_full"
    OUT_OF_RESOURCES = "out_of_resources"
    LOCKED = "locked"
    """Another transaction holds a needed lock, or won a deadlock."""
    TOO_SLOW = "too_slow"


class DatabaseUnavailable(HoldfastError):
    """The database didn't answer. The statement may have taken effect, and may be tried again."""

    def __init__(
        self, detail: str = "", reason: UnavailableReason = UnavailableReason.UNREACHABLE
    ) -> None:
        super().__init__(detail)
        self.reason = reason


class DatabaseBusy(DatabaseUnavailable):
    """No connection became free in time; no statement was sent."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, UnavailableReason.BUSY)


class EventTimedOut(HoldfastError):
    """The event that a tool waited for did not come in time. The tool may catch this and continue."""


class DecisionRejected(HoldfastError):
    """A person rejected what a tool asked, or the ticket expired. The tool may catch this and continue.

    Otherwise its call ends with the message, as the model reads it. `decided_by` is None if the ticket expired.
    """

    def __init__(
        self, message: str, *, reason: str | None = None, decided_by: str | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.decided_by = decided_by


class QuestionInvalid(HoldfastError):
    """A tool asks a person in a way that can't work, such as another question each time it runs."""


class OutcomeUnknown(HoldfastError):
    """A tool lost what carries out its call: whether it took effect is unknown. A person is asked."""


class FileNotSaved(HoldfastError):
    """A tool saves a file in a way that can't work. The message says what to do."""


class MemoryUnavailable(HoldfastError):
    """The call has no memory: its agent has none, or its run names no user. The message says what to do."""


class EventWaitInvalid(HoldfastError):
    """A tool waits with a name, key, schema or timeout that no signal could answer."""


class OutputOverflow(HoldfastError):
    def __init__(self) -> None:
        super().__init__(
            "the call shows more output than can be saved at the moment: its asyncio tasks should "
            "`await ctx.wait_for_capacity()` between pieces"
        )


class OwnershipLost(HoldfastError):
    """Another worker owns the run. A handler must discard its work and write nothing."""


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
    """A plugin failed: its run ends with this error."""

    def __init__(self, plugin: str, phase: str, detail: str) -> None:
        super().__init__(f"plugin {plugin!r} failed in phase {phase!r}: {detail}")
        self.plugin = plugin
        self.phase = phase
