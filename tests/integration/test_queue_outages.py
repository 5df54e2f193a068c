"""Deliveries during a database outage stay queued, and are logged in one line with the reason."""

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
"""Longer than any test, so no delivery is retried because its worker counts as dead."""


@pytest.fixture
async def forwarder(database_url: str) -> AsyncIterator[Forwarder]:
    async with forwarding(database_url) as forwarder:
        yield forwarder


@pytest.fixture
async def forwarded_database(forwarder: Forwarder) -> AsyncIterator[Database]:
    opened = await Database.open(forwarder.url, DatabaseOptions(pool_size=2, hot_pool_size=2))
    yield opened
    await opened.close()


def some_key() -> RunKey:
    return RunKey(Tenant("a"), ThreadId(new_id()), RunId(new_id()), 1)


async def enqueue(database: Database, key: RunKey, *, is_cancel: bool = False) -> None:
    async with database.transaction() as connection:
        await deliveries.enqueue(connection, key, is_cancel=is_cancel)


class DeliveryWorker:
    """Takes deliveries of runs. The first tries of each fail like a statement in an outage."""

    def __init__(self, database: Database, *, failures: int = 0) -> None:
        self.taken: asyncio.Queue[RunKey] = asyncio.Queue()
        self.tries = 0
        self._failures = failures
        self.queue = DeliveryQueue(
            database,
            self._handle,
            self._handle_task,
            self._handle_followup,
            self._handle_signal_job,
            poll=0.1,
            lost_after=LOST_AFTER,
        )

    async def _handle(self, delivered: RunKey, _: str) -> DeliveryResult:
        self.tries += 1
        if self.tries <= self._failures:
            raise DatabaseUnavailable("the test wants it", UnavailableReason.SILENT)
        self.taken.put_nowait(delivered)
        return DeliveryResult.DONE

    async def _handle_task(self, _: TaskKey) -> DeliveryResult:
        raise AssertionError("no task was enqueued")

    async def _handle_followup(self, _: Followup, __: JobInfo) -> RetryAfter | None:
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


async def test_a_delivery_that_fails_in_an_outage_is_logged_in_one_line_and_retried(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    key = some_key()
    await enqueue(database, key)
    delivery_worker = DeliveryWorker(database, failures=1)
    with capture_logs() as logs:
        async with asyncio.timeout(60), asyncio.TaskGroup() as working:
            working.create_task(delivery_worker.queue.work())
            assert await delivery_worker.taken.get() == key
            await eventually(lambda: emptied(database))
            delivery_worker.queue.stop()
    [line] = [entry for entry in logs if entry["event"] == "delivery_postponed"]
    assert (line["kind"], line["reason"]) == ("run", "silent")
    assert errors_of_the_library(caplog) == []


async def test_a_delivery_whose_retry_cannot_be_written_at_first_is_not_lost(
    forwarded_database: Database, forwarder: Forwarder, caplog: pytest.LogCaptureFixture
) -> None:
    key = some_key()
    await enqueue(forwarded_database, key)
    delivery_worker = DeliveryWorker(forwarded_database, failures=1)
    forwarder.lose(b"attempts = attempts + 1")
    async with asyncio.timeout(60), asyncio.TaskGroup() as working:
        working.create_task(delivery_worker.queue.work())
        assert await delivery_worker.taken.get() == key
        await eventually(lambda: emptied(forwarded_database))
        delivery_worker.queue.stop()
    assert forwarder.cuts == 1
    assert errors_of_the_library(caplog) == []


async def test_a_completion_that_cannot_be_written_at_first_is_written_later(
    forwarded_database: Database, forwarder: Forwarder, caplog: pytest.LogCaptureFixture
) -> None:
    await enqueue(forwarded_database, some_key())
    delivery_worker = DeliveryWorker(forwarded_database)
    forwarder.lose(b"DELETE FROM")
    async with asyncio.timeout(60), asyncio.TaskGroup() as working:
        working.create_task(delivery_worker.queue.work())
        await delivery_worker.taken.get()
        await eventually(lambda: emptied(forwarded_database))
        delivery_worker.queue.stop()
    assert forwarder.cuts == 1
    assert delivery_worker.tries == 1
    assert errors_of_the_library(caplog) == []


async def test_a_process_that_stops_in_an_outage_does_not_wait_for_its_end(
    forwarded_database: Database, forwarder: Forwarder, caplog: pytest.LogCaptureFixture
) -> None:
    await enqueue(forwarded_database, some_key())
    delivery_worker = DeliveryWorker(forwarded_database)
    async with asyncio.timeout(60), asyncio.TaskGroup() as working:
        working.create_task(delivery_worker.queue.work())
        await delivery_worker.taken.get()
        await forwarder.block()
        delivery_worker.queue.stop()
    assert errors_of_the_library(caplog) == []


async def test_a_cancel_is_delivered_before_queued_deliveries(database: Database) -> None:
    """Its deduplication key differs, because an older delivery of the run may be stuck."""
    waiting, cancelled = [some_key() for _ in range(20)], some_key()
    for key in (*waiting, cancelled):
        await enqueue(database, key)
    await enqueue(database, cancelled, is_cancel=True)
    delivery_worker = DeliveryWorker(database)
    async with asyncio.timeout(60), asyncio.TaskGroup() as working:
        working.create_task(delivery_worker.queue.work())
        taken = [await delivery_worker.taken.get() for _ in range(len(waiting) + 2)]
        delivery_worker.queue.stop()
    assert taken[0] == cancelled
    assert taken.count(cancelled) == 2
