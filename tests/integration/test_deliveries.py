"""Deliveries: one per run and attempt, although other tenants use the same ids."""

import asyncio

import pytest
from sqlalchemy import text

from app.clock import new_id
from app.domain.children.background_tasks import TaskKey
from app.domain.children.followups import ChildFollowup, Followup, FollowupKind, JobInfo, RetryAfter
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.signals import SignalJob
from app.storage.postgres.database import Database
from app.storage.queue import deliveries
from app.storage.runs.runs import RunKey
from app.workers.delivery_queue import DeliveryQueue, DeliveryResult

pytestmark = pytest.mark.anyio

LOST_AFTER, PROMISED = 0.5, 2.0
"""Seconds until a process counts as dead, and from then on until another one has what it had."""


async def queued(database: Database, *keys: RunKey) -> int:
    async with database.transaction() as connection:
        await connection.execute(text("SELECT 1"))
        for key in keys:
            await deliveries.enqueue(connection, key)
    count: int = await database.pool.fetchval("SELECT count(*) FROM pgq.pgqueuer")
    return count


async def test_a_run_is_delivered_once_per_attempt(database: Database) -> None:
    key = RunKey(Tenant("a"), ThreadId(new_id()), RunId(new_id()), 1)
    again = RunKey(key.tenant, key.thread_id, key.run_id, 2)
    assert await queued(database, key, key, again) == 2


async def test_tenants_with_the_same_run_id_are_both_delivered(database: Database) -> None:
    thread, run = ThreadId(new_id()), RunId(new_id())
    keys = [RunKey(Tenant(name), thread, run, 1) for name in ("a", "b")]
    assert await queued(database, *keys) == 2


async def test_a_delivery_whose_worker_died_is_taken_by_another(database: Database) -> None:
    """Once the worker counts as dead. Until then no second delivery for the run is queued."""
    key = RunKey(Tenant("a"), ThreadId(new_id()), RunId(new_id()), 1)
    await queued(database, key)
    await database.pool.execute(
        "UPDATE pgq.pgqueuer SET status = 'picked', heartbeat = now(), queue_manager_id = $1",
        new_id(),
    )
    assert await queued(database, key) == 1
    taken: asyncio.Queue[object] = asyncio.Queue()
    async with asyncio.timeout(30), asyncio.TaskGroup() as working:
        queue = queue_into(database, taken)
        working.create_task(queue.work())
        assert await taken.get() == key
        queue.stop()


async def test_a_followup_whose_worker_died_is_taken_by_another_in_time(
    database: Database,
) -> None:
    """Retaken once the worker's heartbeat has expired and the queue was polled."""
    followup = ChildFollowup(
        kind=FollowupKind.START,
        tenant=Tenant("a"),
        parent_run_id=RunId(new_id()),
        child_run_id=RunId(new_id()),
    )
    async with database.transaction() as connection:
        await deliveries.enqueue_followup(connection, followup)
    await database.pool.execute(
        "UPDATE pgq.pgqueuer SET status = 'picked', heartbeat = now(), queue_manager_id = $1",
        new_id(),
    )
    taken: asyncio.Queue[object] = asyncio.Queue()
    async with asyncio.timeout(30), asyncio.TaskGroup() as working:
        queue = queue_into(database, taken)
        working.create_task(queue.work())
        assert await taken.get() == (followup, JobInfo(is_late=True))
        queue.stop()
    seconds_until_retaken = await database.pool.fetchval(
        "SELECT extract(epoch FROM now() - min(created)) FROM pgq.pgqueuer_log WHERE status = 'queued'"
    )
    assert LOST_AFTER <= seconds_until_retaken <= LOST_AFTER + PROMISED


async def test_a_followup_that_has_to_wait_is_delivered_again_and_not_as_late(
    database: Database,
) -> None:
    followup = ChildFollowup(
        kind=FollowupKind.DELETE,
        tenant=Tenant("a"),
        parent_run_id=RunId(new_id()),
        child_run_id=RunId(new_id()),
    )
    async with database.transaction() as connection:
        await deliveries.enqueue_followup(connection, followup)
    taken: asyncio.Queue[object] = asyncio.Queue()
    async with asyncio.timeout(30), asyncio.TaskGroup() as working:
        queue = queue_into(database, taken, lost_after=5.0)
        working.create_task(queue.work())
        assert [await taken.get() for _ in range(3)] == [
            (followup, JobInfo(polls=looks)) for looks in range(3)
        ]
        queue.stop()


async def test_a_followup_that_is_found_missing_repeatedly_is_queued_once(
    database: Database,
) -> None:
    followup = ChildFollowup(
        kind=FollowupKind.CANCEL,
        tenant=Tenant("a"),
        parent_run_id=RunId(new_id()),
        child_run_id=RunId(new_id()),
    )
    for is_found in (True, True, False):
        async with database.transaction() as connection:
            await deliveries.enqueue_followup(connection, followup, is_found=is_found)
    assert await database.pool.fetchval("SELECT count(*) FROM pgq.pgqueuer") == 2


def queue_into(
    database: Database, taken: "asyncio.Queue[object]", lost_after: float = LOST_AFTER
) -> DeliveryQueue:
    """A queue whose handlers put each delivery into `taken`."""

    async def handle(delivered: RunKey, _: str) -> DeliveryResult:
        taken.put_nowait(delivered)
        return DeliveryResult.DONE

    async def handle_task(delivered: TaskKey) -> DeliveryResult:
        taken.put_nowait(delivered)
        return DeliveryResult.DONE

    async def handle_followup(delivered: Followup, asked: JobInfo) -> RetryAfter | None:
        taken.put_nowait((delivered, asked))
        return None if asked.is_late else RetryAfter(0.1)

    async def handle_signal_job(job: SignalJob) -> None:
        taken.put_nowait(job)

    return DeliveryQueue(
        database,
        handle,
        handle_task,
        handle_followup,
        handle_signal_job,
        poll=0.1,
        lost_after=lost_after,
    )
