"""Outages: their reason, how often they are logged, and how a database address is shown."""

import asyncpg
import pytest
from structlog.testing import capture_logs

from app.domain.errors import DatabaseBusy, UnavailableReason
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.postgres.errors import RECENT_SECONDS, OutageLog, reason_of
from app.storage.postgres.urls import place_of
from tests.support.clocks import Clock


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(), UnavailableReason.UNREACHABLE),
        (TimeoutError(), UnavailableReason.SILENT),
        (asyncpg.AdminShutdownError("the server ends"), UnavailableReason.UNREACHABLE),
        (asyncpg.QueryCanceledError("statement timeout"), UnavailableReason.TOO_SLOW),
        (asyncpg.DiskFullError("no space left"), UnavailableReason.DISK_FULL),
        (asyncpg.TooManyConnectionsError("too many"), UnavailableReason.TOO_MANY_CONNECTIONS),
        (asyncpg.OutOfMemoryError("no memory"), UnavailableReason.OUT_OF_RESOURCES),
        (asyncpg.PostgresIOError("can't read"), UnavailableReason.OUT_OF_RESOURCES),
        (asyncpg.ReadOnlySQLTransactionError("a standby"), UnavailableReason.READ_ONLY),
        (asyncpg.LockNotAvailableError("lock timeout"), UnavailableReason.LOCKED),
        (asyncpg.DeadlockDetectedError("deadlock"), UnavailableReason.LOCKED),
        (asyncpg.IdleInTransactionSessionTimeoutError("idle"), UnavailableReason.UNREACHABLE),
        (asyncpg.InvalidCachedStatementError("planned before"), UnavailableReason.UNREACHABLE),
        (DatabaseBusy("all in use"), UnavailableReason.BUSY),
    ],
)
def test_a_transient_error_has_a_reason(error: Exception, reason: UnavailableReason) -> None:
    assert isinstance(error, DATABASE_UNAVAILABLE)
    assert reason_of(error) is reason


def test_a_permanent_error_is_no_outage() -> None:
    for error in (asyncpg.UniqueViolationError("twice"), asyncpg.UndefinedTableError("nowhere")):
        assert not isinstance(error, DATABASE_UNAVAILABLE)


def test_an_outage_is_logged_at_intervals_and_at_its_end() -> None:
    clock = Clock()
    noted = OutageLog(clock)
    with capture_logs() as logs:
        for _ in range(240):
            noted.record_failure(ConnectionRefusedError())
            clock.now += 0.125
        noted.record_failure(asyncpg.DiskFullError("no space left"))
        noted.record_success()
        clock.now += RECENT_SECONDS
        noted.record_success()
        noted.record_success()
    assert [(entry["event"], entry.get("reason"), entry.get("failures")) for entry in logs] == [
        ("database_unavailable", "unreachable", 1),
        ("database_unavailable", "unreachable", 80),
        ("database_unavailable", "unreachable", 80),
        ("database_unavailable", "disk_full", 1),
        ("database_available_again", None, None),
    ]


def test_a_failure_that_a_ping_would_not_see_is_kept_for_a_while() -> None:
    clock = Clock()
    noted = OutageLog(clock)
    seen = [noted.recent_failure()]
    for error in (TimeoutError(), asyncpg.DiskFullError("no space left"), DatabaseBusy("all")):
        noted.record_failure(error)
        noted.record_success()
        seen.append(noted.recent_failure())
    clock.now += RECENT_SECONDS
    seen.append(noted.recent_failure())
    assert seen == [None, None, UnavailableReason.DISK_FULL, UnavailableReason.BUSY, None]


def test_a_disk_counts_as_full_until_free_space_is_recorded() -> None:
    clock = Clock()
    noted = OutageLog(clock)
    noted.record_failure(TimeoutError())
    seen = [noted.is_disk_full]
    noted.record_failure(asyncpg.DiskFullError("no space left"))
    clock.now += RECENT_SECONDS
    noted.record_success()
    seen.append(noted.is_disk_full)
    noted.record_free_disk()
    seen.append(noted.is_disk_full)
    assert seen == [False, True, False]


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://ann:secret@db:5432/holdfast", "db:5432/holdfast"),
        ("postgresql://ann@a:5432,b:5433/holdfast?x=1", "a:5432,b:5433/holdfast"),
        ("postgresql://ann@/holdfast?host=/run", "the local socket/holdfast"),
        ("postgresql://ann@[::1]:5432/holdfast", "[::1]:5432/holdfast"),
        ("postgresql://ann:secret/holdfast", "an address whose port isn't a number"),
        ("postgresql://ann:secret@[::1/holdfast", "an address that can't be read"),
    ],
)
def test_a_database_address_is_shown_without_credentials(url: str, place: str) -> None:
    assert place_of(url) == place
