"""Threads in the order of their last runs, read from the storage."""

from dataclasses import replace

import pytest

from app.clock import SystemClock
from app.domain.ids import ThreadId
from app.domain.slices import Order, PageRequest
from app.domain.threads.threads import ThreadFilter, ThreadSort
from app.storage.checkpoints import batched
from app.storage.postgres.database import Database
from app.storage.threads import listing
from tests.support.stored_runs import TENANT, admit, checkpoint_of, done, some_run, worker

pytestmark = pytest.mark.anyio

NOW = SystemClock().now


async def turn(database: Database, thread_id: ThreadId | None = None, *, seq: int = 1) -> ThreadId:
    """A run of the thread from its start to its end."""
    run = some_run("Hello", thread_id=thread_id)
    assert await admit(database.pool, run, await worker(database.pool)) is not None
    ended = checkpoint_of(run, state=done(), next_seq=seq + 1)
    assert await batched.checkpoint(database.pool, [(ended, [])], NOW())
    return run.thread_id


@pytest.mark.parametrize("runs_at_once", [1, 2, listing.RUNS_AT_ONCE])
@pytest.mark.parametrize("order", Order)
async def test_pages_by_the_last_run_are_the_same_however_many_runs_are_searched_first(
    database: Database, monkeypatch: pytest.MonkeyPatch, runs_at_once: int, order: Order
) -> None:
    monkeypatch.setattr(listing, "RUNS_AT_ONCE", runs_at_once)
    first, second, third = [await turn(database) for _ in range(3)]
    await turn(database, first, seq=2)
    await turn(database, third, seq=2)
    await turn(database, third, seq=3)
    await database.pool.execute("UPDATE threads SET title = 'of the test' WHERE id <> $1", second)
    oldest_first = [second, first, third]
    for wanted, expected in (
        (ThreadFilter(), oldest_first),
        (ThreadFilter(title="test"), [first, third]),
        (ThreadFilter(title="unknown"), []),
    ):
        found: list[ThreadId] = []
        requested = PageRequest(limit=1, order=order)
        async with database.reading() as connection:
            while True:
                page = await listing.page(
                    connection, TENANT, wanted, ThreadSort.LAST_RUN, requested
                )
                found += [each.thread.id for each in page.items]
                if not page.has_more:
                    break
                last = page.items[-1]
                requested = replace(requested, after=(last.last_run_at, last.thread.latest_run_id))
        assert found == (expected if order is Order.ASC else expected[::-1])
