"""Deliveries: one wake-up per run and attempt, whoever else uses the same ids."""

import asyncio

import pytest
from sqlalchemy import text

from app.clock import new_id
from app.dispatch.queue import DeliveryQueue, Handled
from app.domain.errands import Errand
from app.domain.ids import RunId, Tenant, ThreadId
from app.storage import deliveries
from app.storage.database import Database
from app.storage.runs import RunKey
from app.storage.tasks import TaskKey

pytestmark = pytest.mark.anyio


async def queued(database: Database, *keys: RunKey) -> int:
    async with database.transaction() as connection:
        await connection.execute(text("SELECT 1"))
        for key in keys:
            await deliveries.enqueue(connection, key)
    count: int = await database.hot.fetchval("SELECT count(*) FROM pgq.pgqueuer")
    return count


async def test_a_run_is_delivered_once_per_attempt(database: Database) -> None:
    key = RunKey(Tenant("a"), ThreadId(new_id()), RunId(new_id()), 1)
    again = RunKey(key.tenant, key.thread_id, key.run_id, 2)
    assert await queued(database, key, key, again) == 2


async def test_tenants_with_the_same_run_id_are_both_delivered(database: Database) -> None:
    thread, run = ThreadId(new_id()), RunId(new_id())
    keys = [RunKey(Tenant(name), thread, run, 1) for name in ("a", "b")]
    assert await queued(database, *keys) == 2


async def test_a_delivery_that_its_taker_died_over_is_had_by_another(database: Database) -> None:
    """As soon as a worker counts as dead: until then no second delivery for the run gets through."""
    key = RunKey(Tenant("a"), ThreadId(new_id()), RunId(new_id()), 1)
    await queued(database, key)
    await database.hot.execute(
        "UPDATE pgq.pgqueuer SET status = 'picked', heartbeat = now(), queue_manager_id = $1",
        new_id(),
    )
    assert await queued(database, key) == 1
    had: asyncio.Queue[RunKey] = asyncio.Queue()

    async def handle(delivered: RunKey, _: str) -> Handled:
        had.put_nowait(delivered)
        return Handled.DONE

    async def handle_task(_: TaskKey) -> Handled:
        return Handled.DONE

    async def handle_errand(_: Errand) -> Handled:
        return Handled.DONE

    queue = DeliveryQueue(database, handle, handle_task, handle_errand, poll=0.1, lost_after=0.5)
    async with asyncio.timeout(8), asyncio.TaskGroup() as working:
        working.create_task(queue.work())
        assert await had.get() == key
        queue.stop()
