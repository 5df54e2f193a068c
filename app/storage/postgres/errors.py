"""Temporary database errors: their reasons, and a log of outages."""

import time
from collections.abc import Callable

import asyncpg
import structlog

from app import telemetry
from app.domain.errors import DatabaseUnavailable, DatabaseUnusable, UnavailableReason

LOG_INTERVAL_SECONDS = 10.0
"""Seconds between two log lines about one reason."""
RECENT_SECONDS = 3.0
"""Seconds without a failure after which an outage is over."""

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
    # Prepared before a change of the schema; the driver prepares it again.
    asyncpg.InvalidCachedStatementError,
    # A database that is being renamed or restored, or refuses connections for a while.
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
)
"""Temporary errors of the driver: the same statement may succeed soon."""

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
_INVISIBLE_TO_PING = frozenset(
    {UnavailableReason.DISK_FULL, UnavailableReason.BUSY, UnavailableReason.TOO_MANY_CONNECTIONS}
)
"""A ping can succeed on a full disk, and while a pool is exhausted for most callers."""
_SENTENCES = {
    UnavailableReason.READ_ONLY: "takes no writes",
    UnavailableReason.DISK_FULL: "has no room left",
    UnavailableReason.TOO_MANY_CONNECTIONS: "takes no more connections",
}
INVALIDATING_REASONS = frozenset({UnavailableReason.READ_ONLY, UnavailableReason.SILENT})
"""After these, all connections are replaced: after a failover they may lead to the wrong server."""

log = structlog.get_logger(__name__)


def reason_of(error: BaseException) -> UnavailableReason:
    """The reason of a temporary error."""
    if isinstance(error, DatabaseUnavailable):
        return error.reason
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return UnavailableReason.UNREACHABLE


def unusable(place: str, error: BaseException) -> DatabaseUnusable:
    """The error of a process that can't start without the database."""
    reason = _SENTENCES.get(reason_of(error), "doesn't answer")
    return DatabaseUnusable(
        f"The database ({place}) {reason}: {str(error) or type(error).__name__}. Start again when the database is available."
    )


class OutageLog:
    """Counts every failure, logs each reason at intervals, and logs the end of an outage once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at: dict[UnavailableReason, float] = {}
        self._unlogged: dict[UnavailableReason, int] = {}
        self._began_at: float | None = None
        self._failed_at = 0.0
        self._invisible_failure: tuple[UnavailableReason, float] | None = None
        self.is_disk_full = False
        """Whether the disk was full, and no check has found free space since."""

    def record_failure(self, error: BaseException) -> UnavailableReason:
        """Record a temporary failure of a statement."""
        reason = reason_of(error)
        telemetry.database_failures.labels(reason.value).inc()
        now = self._clock()
        self._failed_at = now
        if reason in _INVISIBLE_TO_PING:
            self._invisible_failure = (reason, now)
        self.is_disk_full |= reason is UnavailableReason.DISK_FULL
        if self._began_at is None:
            self._began_at = now
        self._unlogged[reason] = self._unlogged.get(reason, 0) + 1
        if now - self._logged_at.get(reason, -LOG_INTERVAL_SECONDS) >= LOG_INTERVAL_SECONDS:
            self._logged_at[reason] = now
            log.warning(
                "database_unavailable",
                reason=reason.value,
                error=f"{type(error).__name__}: {error}"[:300],
                failures=self._unlogged.pop(reason),
            )
        return reason

    def recent_failure(self) -> UnavailableReason | None:
        """The last recent failure that a ping would not see (disk full, pool exhausted)."""
        if self._invisible_failure is None:
            return None
        reason, at = self._invisible_failure
        return reason if self._clock() - at < RECENT_SECONDS else None

    def record_free_disk(self) -> None:
        self.is_disk_full = False

    def record_success(self) -> None:
        """Record a success. It ends the outage once no statement has failed for a while."""
        if self._began_at is None:
            return
        now = self._clock()
        if now - self._failed_at >= RECENT_SECONDS:
            log.info("database_available_again", seconds=round(self._failed_at - self._began_at, 1))
            self._began_at = None
            self._logged_at.clear()
            self._unlogged.clear()
