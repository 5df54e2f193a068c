"""What an outage is called, how often the log hears of it, and how a place is shown."""

import asyncpg
import pytest
from structlog.testing import capture_logs

from app.domain.errors import DatabaseBusy, Reason
from app.storage.database import DATABASE_AWAY
from app.storage.database_urls import place_of
from app.storage.outages import OVER_AFTER, Outages, reason_of
from tests.support.clocks import Clock


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(), Reason.UNREACHABLE),
        (TimeoutError(), Reason.SILENT),
        (asyncpg.AdminShutdownError("the server ends"), Reason.UNREACHABLE),
        (asyncpg.QueryCanceledError("statement timeout"), Reason.TOO_SLOW),
        (asyncpg.DiskFullError("no space left"), Reason.DISK_FULL),
        (asyncpg.TooManyConnectionsError("too many"), Reason.TOO_MANY_CONNECTIONS),
        (asyncpg.OutOfMemoryError("no memory"), Reason.OUT_OF_RESOURCES),
        (asyncpg.PostgresIOError("can't read"), Reason.OUT_OF_RESOURCES),
        (asyncpg.ReadOnlySQLTransactionError("a standby"), Reason.READ_ONLY),
        (asyncpg.LockNotAvailableError("lock timeout"), Reason.LOCKED),
        (asyncpg.DeadlockDetectedError("deadlock"), Reason.LOCKED),
        (asyncpg.IdleInTransactionSessionTimeoutError("idle"), Reason.UNREACHABLE),
        (asyncpg.InvalidCachedStatementError("planned before"), Reason.UNREACHABLE),
        (DatabaseBusy("all in use"), Reason.BUSY),
    ],
)
def test_what_passes_has_a_reason(error: Exception, reason: Reason) -> None:
    assert isinstance(error, DATABASE_AWAY)
    assert reason_of(error) is reason


def test_what_does_not_pass_is_no_outage() -> None:
    for error in (asyncpg.UniqueViolationError("twice"), asyncpg.UndefinedTableError("nowhere")):
        assert not isinstance(error, DATABASE_AWAY)


def test_the_log_hears_of_an_outage_now_and_then_and_of_its_end() -> None:
    clock = Clock()
    noted = Outages(clock)
    with capture_logs() as logs:
        for _ in range(240):
            noted.failed(ConnectionRefusedError())
            clock.now += 0.125
        noted.failed(asyncpg.DiskFullError("no space left"))
        noted.worked()
        clock.now += OVER_AFTER
        noted.worked()
        noted.worked()
    assert [(entry["event"], entry.get("reason"), entry.get("failures")) for entry in logs] == [
        ("database_away", "unreachable", 1),
        ("database_away", "unreachable", 80),
        ("database_away", "unreachable", 80),
        ("database_away", "disk_full", 1),
        ("database_back", None, None),
    ]


def test_what_others_suffer_from_is_remembered_while_one_who_looks_would_not_see_it() -> None:
    clock = Clock()
    noted = Outages(clock)
    seen = [noted.lately()]
    for error in (TimeoutError(), asyncpg.DiskFullError("no space left"), DatabaseBusy("all")):
        noted.failed(error)
        noted.worked()
        seen.append(noted.lately())
    clock.now += OVER_AFTER
    seen.append(noted.lately())
    assert seen == [None, None, Reason.DISK_FULL, Reason.BUSY, None]


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
def test_a_place_is_shown_without_who_may_enter(url: str, place: str) -> None:
    assert place_of(url) == place
