"""Deliveries that meet a database outage: kept, and logged in one line with its reason."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from app.clock import new_id
from app.domain.children.background_tasks import TaskKey
from app.domain.children.followups import Followup, JobInfo, RetryAfter
from app.domain.errors import DatabaseUnavailable, UnavailableReason
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.signals import SignalJob
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.queue import deliveries
from app.storage.runs.runs import RunKey
from app.workers.delivery_queue import DeliveryQueue, DeliveryResult
from tests.support.conditions import eventually
from tests.support.forwarders import Forwarder, forwarding

pytestmark = pytest.mark.anyio

LOST_AFTER = 60.0
"""Longer than any test: no delivery comes a second time because its first taker seems dead."""


@pytest.fixture
async def way(database_url: str) -> AsyncIterator[Forwarder]:
    async with forwarding(database_url) as forwarder:
        yield forwarder


@pytest.fixture
async def there(way: Forwarder) -> AsyncIterator[Database]:
    opened = await Database.open(way.url, DatabaseOptions(pool_size=2, hot_pool_size=2))
    yield opened
    await opened.close()


def some_key() -> RunKey:
    return RunKey(Tenant("a"), ThreadId(new_id()), RunId(new_id()), 1)


async def enqueue(database: Database, key: RunKey, *, is_cancel: bool = False) -> None:
    async with database.transaction() as connection:
        await deliveries.enqueue(connection, key, is_cancel=is_cancel)


class Taker:
    """Takes runs; the first tries of each fail as a statement does in an outage."""

    def __init__(self, database: Database, *, failures: int = 0) -> None:
        self.had: asyncio.Queue[RunKey] = asyncio.Queue()
        self.tries = 0
        self._failures = failures
        self.queue = DeliveryQueue(
            database,
            self._handle,
            self._handle_task,
            self._handle_errand,
            self._handle_signal_job,
            poll=0.1,
            lost_after=LOST_AFTER,
        )

    async def _handle(self, delivered: RunKey, _: str) -> DeliveryResult:
        self.tries += 1
        if self.tries <= self._failures:
            raise DatabaseUnavailable("the test wants it", UnavailableReason.SILENT)
        self.had.put_nowait(delivered)
        return DeliveryResult.DONE

    async def _handle_task(self, _: TaskKey) -> DeliveryResult:
        raise AssertionError("no task was enqueued")

    async def _handle_errand(self, _: Followup, __: JobInfo) -> RetryAfter | None:
        raise AssertionError("no follow-up was enqueued")

    async def _handle_signal_job(self, _: SignalJob) -> None:
        raise AssertionError("no signal was enqueued")


async def emptied(database: Database) -> bool:
    left: int = await database.pool.fetchval("SELECT count(*) FROM pgq.pgqueuer")
    return left == 0


def errors_of_the_library(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("pgqueuer") and record.levelno >= logging.WARNING
    ]


async def test_a_delivery_that_meets_an_outage_is_one_line_and_comes_again(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    key = some_key()
    await enqueue(database, key)
    taker = Taker(database, failures=1)
    with capture_logs() as logs:
        async with asyncio.timeout(20), asyncio.TaskGroup() as working:
            working.create_task(taker.queue.work())
            assert await taker.had.get() == key
            await eventually(lambda: emptied(database))
            taker.queue.stop()
    [line] = [entry for entry in logs if entry["event"] == "delivery_postponed"]
    assert (line["kind"], line["reason"]) == ("run", "silent")
    assert errors_of_the_library(caplog) == []


async def test_a_delivery_whose_retry_can_not_be_written_at_first_is_not_lost(
    there: Database, way: Forwarder, caplog: pytest.LogCaptureFixture
) -> None:
    key = some_key()
    await enqueue(there, key)
    taker = Taker(there, failures=1)
    way.lose(b"attempts = attempts + 1")
    async with asyncio.timeout(20), asyncio.TaskGroup() as working:
        working.create_task(taker.queue.work())
        assert await taker.had.get() == key
        await eventually(lambda: emptied(there))
        taker.queue.stop()
    assert way.cuts == 1
    assert errors_of_the_library(caplog) == []


async def test_a_completion_that_can_not_be_written_at_first_is_written_later(
    there: Database, way: Forwarder, caplog: pytest.LogCaptureFixture
) -> None:
    await enqueue(there, some_key())
    taker = Taker(there)
    way.lose(b"DELETE FROM")
    async with asyncio.timeout(20), asyncio.TaskGroup() as working:
        working.create_task(taker.queue.work())
        await taker.had.get()
        await eventually(lambda: emptied(there))
        taker.queue.stop()
    assert way.cuts == 1
    assert taker.tries == 1
    assert errors_of_the_library(caplog) == []


async def test_a_process_that_stops_in_an_outage_does_not_wait_for_it(
    there: Database, way: Forwarder, caplog: pytest.LogCaptureFixture
) -> None:
    await enqueue(there, some_key())
    taker = Taker(there)
    async with asyncio.timeout(20), asyncio.TaskGroup() as working:
        working.create_task(taker.queue.work())
        await taker.had.get()
        await way.block()
        taker.queue.stop()
    assert errors_of_the_library(caplog) == []


async def test_a_cancel_is_delivered_before_all_that_waits(database: Database) -> None:
    """Its key is its own: an older delivery of the same run may be stuck."""
    waiting, cancelled = [some_key() for _ in range(20)], some_key()
    for key in (*waiting, cancelled):
        await enqueue(database, key)
    await enqueue(database, cancelled, is_cancel=True)
    taker = Taker(database)
    async with asyncio.timeout(20), asyncio.TaskGroup() as working:
        working.create_task(taker.queue.work())
        taken = [await taker.had.get() for _ in range(len(waiting) + 2)]
        taker.queue.stop()
    assert taken[0] == cancelled
    assert taken.count(cancelled) == 2
