"""Why the database can't be used just now: one word for each cause, told once and counted always."""

import time
from collections.abc import Callable

import asyncpg
import structlog

from app import telemetry
from app.domain.errors import DatabaseUnavailable, DatabaseUnusable, UnavailableReason

LOG_INTERVAL_SECONDS = 10.0
"""Seconds between two lines in the log about one cause, however many statements fail of it."""
RECENT_SECONDS = 3.0
"""Seconds without a failure until an outage counts as over."""

TRANSIENT_CODES: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    # A connection that the server has ended, used before the driver has seen it close.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    # Planned before somebody changed the schema: the next time it is planned anew.
    asyncpg.InvalidCachedStatementError,
    # A database that is being renamed, restored or closed to us for a while.
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
)
"""What passes by itself, as the driver says it: the same statement may succeed in a moment."""

_REASONS: tuple[tuple[type[Exception], UnavailableReason], ...] = (
    (asyncpg.ReadOnlySQLTransactionError, UnavailableReason.READ_ONLY),
    (asyncpg.DiskFullError, UnavailableReason.DISK_FULL),
    (asyncpg.TooManyConnectionsError, UnavailableReason.TOO_MANY_CONNECTIONS),
    (asyncpg.InsufficientResourcesError, UnavailableReason.OUT_OF_RESOURCES),
    (asyncpg.PostgresSystemError, UnavailableReason.OUT_OF_RESOURCES),
    (asyncpg.QueryCanceledError, UnavailableReason.TOO_SLOW),
    (asyncpg.TransactionTimeoutError, UnavailableReason.TOO_SLOW),
    (asyncpg.LockNotAvailableError, UnavailableReason.LOCKED),
    (asyncpg.TransactionRollbackError, UnavailableReason.LOCKED),
    (TimeoutError, UnavailableReason.SILENT),
)
_HARD_TO_SEE = frozenset(
    {UnavailableReason.DISK_FULL, UnavailableReason.BUSY, UnavailableReason.TOO_MANY_CONNECTIONS}
)
"""A full disk has room for small things, and a crowded pool for one who comes at the right moment."""
_SENTENCES = {
    UnavailableReason.READ_ONLY: "takes no writes",
    UnavailableReason.DISK_FULL: "has no room left",
    UnavailableReason.TOO_MANY_CONNECTIONS: "takes no more connections",
}
INVALIDATING_REASONS = frozenset({UnavailableReason.READ_ONLY, UnavailableReason.SILENT})
"""After these, other connections to the same place aren't believed either: it may be the wrong one now."""

log = structlog.get_logger(__name__)


def reason_of(error: BaseException) -> UnavailableReason:
    """The cause in one word, of something that passes."""
    if isinstance(error, DatabaseUnavailable):
        return error.reason
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return UnavailableReason.UNREACHABLE


def unusable(place: str, error: BaseException) -> DatabaseUnusable:
    """For whoever can't begin without: one sentence."""
    reason = _SENTENCES.get(reason_of(error), "doesn't answer")
    return DatabaseUnusable(
        f"The database ({place}) {reason}: {str(error) or type(error).__name__}. Start again when it does better."
    )


class OutageLog:
    """What fails is counted each time and logged now and then; that it works again is logged once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at: dict[UnavailableReason, float] = {}
        self._unsaid: dict[UnavailableReason, int] = {}
        self._began_at: float | None = None
        self._failed_at = 0.0
        self._hard: tuple[UnavailableReason, float] | None = None
        self.lacks_room = False
        """Whether a disk was full, and nobody has found room on it since."""

    def record_failure(self, error: BaseException) -> UnavailableReason:
        """Note that a statement failed of something that passes."""
        reason = reason_of(error)
        telemetry.database_failures.labels(reason.value).inc()
        now = self._clock()
        self._failed_at = now
        if reason in _HARD_TO_SEE:
            self._hard = (reason, now)
        self.lacks_room |= reason is UnavailableReason.DISK_FULL
        if self._began_at is None:
            self._began_at = now
        self._unsaid[reason] = self._unsaid.get(reason, 0) + 1
        if now - self._said_at.get(reason, -LOG_INTERVAL_SECONDS) >= LOG_INTERVAL_SECONDS:
            self._said_at[reason] = now
            log.warning(
                "database_away",
                reason=reason.value,
                error=f"{type(error).__name__}: {error}"[:300],
                failures=self._unsaid.pop(reason),
            )
        return reason

    def recent_failure(self) -> UnavailableReason | None:
        """What others have suffered from a moment ago, and whoever just looks may not."""
        if self._hard is None:
            return None
        reason, at = self._hard
        return reason if self._clock() - at < RECENT_SECONDS else None

    def disk_has_room(self) -> None:
        self.lacks_room = False

    def record_success(self) -> None:
        """Note that a statement succeeded; others may go on failing, of a full disk for one."""
        if self._began_at is None:
            return
        now = self._clock()
        if now - self._failed_at >= RECENT_SECONDS:
            log.info("database_back", seconds=round(self._failed_at - self._began_at, 1))
            self._began_at = None
            self._said_at.clear()
            self._unsaid.clear()
