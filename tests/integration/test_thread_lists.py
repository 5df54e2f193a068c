"""Threads in the order of their last runs, read from the storage."""

import pytest

from app.clock import SystemClock
from app.domain.ids import ThreadId
from app.domain.slices import Order, PageRequest
from app.domain.structs import replace
from app.domain.threads.threads import ThreadFilter, ThreadSort
from app.storage.checkpoints import batched
from app.storage.postgres.database import Database
from app.storage.threads import listing, titles
from tests.support.stored_runs import TENANT, admit, checkpoint_of, done, some_run, worker

pytestmark = pytest.mark.anyio

NOW = SystemClock().now
_NAME = "UPDATE threads SET title = $1 WHERE id = $2"


async def turn(database: Database, thread_id: ThreadId | None = None, *, seq: int = 1) -> ThreadId:
    """A run of the thread from its start to its end."""
    run = some_run("Hello", thread_id=thread_id)
    assert await admit(database.pool, run, await worker(database.pool)) is not None
    ended = checkpoint_of(run, state=done(), next_seq=seq + 1)
    assert await batched.checkpoint(database.pool, [(ended, [])], NOW())
    return run.thread_id


@pytest.mark.parametrize("runs_at_once", [1, 2, listing.RUNS_AT_ONCE])
@pytest.mark.parametrize("max_matches", [0, 1, titles.MAX_MATCHES])
@pytest.mark.parametrize("order", Order)
async def test_pages_by_the_last_run_are_the_same_however_many_runs_and_titles_are_searched_first(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    runs_at_once: int,
    max_matches: int,
    order: Order,
) -> None:
    monkeypatch.setattr(listing, "RUNS_AT_ONCE", runs_at_once)
    monkeypatch.setattr(listing, "RUNS_FOR_WORDS", runs_at_once)
    monkeypatch.setattr(titles, "MAX_MATCHES", max_matches)
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


@pytest.mark.parametrize("max_matches", [0, titles.MAX_MATCHES])
async def test_frequent_and_rare_words_of_titles_find_the_same_threads(
    database: Database, monkeypatch: pytest.MonkeyPatch, max_matches: int
) -> None:
    monkeypatch.setattr(titles, "MAX_MATCHES", max_matches)
    first, second, _ = [await turn(database) for _ in range(3)]
    named = {first: "Order 7, of paper", second: "orderly papers"}
    for thread_id, title in named.items():
        await database.pool.execute(_NAME, title, thread_id)
    for words, expected in (
        ("order pap", [second, first]),
        ("ORDER 7", [first]),
        ("papers", [second]),
        ("rder", []),
        (", ", []),
        ("pap' | 'x", []),
    ):
        async with database.reading() as connection:
            page = await listing.page(
                connection,
                TENANT,
                ThreadFilter(title=words),
                ThreadSort.CREATED,
                PageRequest(limit=10),
            )
        assert [each.thread.id for each in page.items] == expected
