"""What a claimed run reads of its events doesn't grow with the number of its steps."""

import json
from typing import Any

import pytest

from app.domain.claims.stored_progress import StoredProgress
from app.domain.events.run_events import RUN_FINISH, RUN_START
from app.domain.events.step_events import STEP_END, STEP_START
from app.domain.runs.runs import NewRun
from app.storage.checkpoints import loading
from app.storage.events import batched_append
from app.storage.events.batched_append import Flush
from app.storage.events.event_log import EventEntry
from app.storage.postgres.database import Database
from app.storage.runs import runs
from tests.support.following import NOW
from tests.support.stored_runs import deltas, running

pytestmark = pytest.mark.anyio

DELTAS_OF_A_STEP = 20


async def write(database: Database, run: NewRun, *entries: EventEntry) -> None:
    written = Flush(run.tenant, run.thread_id, run.id, 1, entries)
    assert await batched_append.flush(database.pool, [written], NOW())


def event(event_type: str, step: int | None = None) -> EventEntry:
    return EventEntry(step, event_type, "{}")


def whole_step(step: int) -> list[EventEntry]:
    texts = deltas(*("word " for _ in range(DELTAS_OF_A_STEP)))
    return [event(STEP_START, step), *texts, event(STEP_END, step)]


async def progress_of(database: Database, run: NewRun) -> StoredProgress:
    async with database.reading() as connection:
        record = await runs.get(connection, run.tenant, run.id)
    assert record is not None
    return await loading.load(database.pool, record, with_log=False)


async def events_read(database: Database, run: NewRun) -> int:
    """The rows of events that the statement reads."""
    text, *arguments = loading._LOAD(
        tenant=run.tenant,
        thread_id=run.thread_id,
        run_id=run.id,
        events_from=0,
        with_log=False,
        with_progress=True,
        from_seq=1,
    )
    explained = await database.pool.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *arguments)
    return _rows_of_events(json.loads(explained)[0]["Plan"])


def _rows_of_events(node: dict[str, Any]) -> int:
    own = 0
    if node.get("Relation Name") == "events":
        own = int(node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
    return own + sum(_rows_of_events(below) for below in node.get("Plans", ()))


async def test_a_run_of_many_steps_reads_only_the_events_of_its_last_ones(
    database: Database,
) -> None:
    run = await running(database.pool)
    await write(database, run, event(RUN_START))
    for step in range(1, 201):
        await write(database, run, *whole_step(step))
    await write(database, run, event(STEP_START, 201), *deltas("so ", "far"))
    await database.pool.execute("ANALYZE events")
    found = await progress_of(database, run)
    assert (found.is_open, found.begun_step) == (True, 201)
    assert await events_read(database, run) <= 3 * DELTAS_OF_A_STEP


@pytest.mark.parametrize(
    ("entries", "is_open", "begun_step"),
    [
        ([], False, 0),
        ([event(RUN_START)], True, 0),
        ([event(RUN_START), *whole_step(1)], True, 1),
        ([event(RUN_START), event(STEP_START, 1), event(RUN_FINISH)], False, 1),
        ([event(RUN_START), event(STEP_START, 1), event(RUN_FINISH), event(RUN_START)], True, 1),
    ],
)
async def test_the_newest_events_tell_where_the_run_continues(
    database: Database, entries: list[EventEntry], is_open: bool, begun_step: int
) -> None:
    run = await running(database.pool)
    if entries:
        await write(database, run, *entries)
    found = await progress_of(database, run)
    assert (found.is_open, found.begun_step) == (is_open, begun_step)
