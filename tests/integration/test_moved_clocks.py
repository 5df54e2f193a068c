"""A writer whose machine has a clock that stands still, or is put back: the log is right all the same."""

from datetime import datetime, timedelta

import pytest

from app.clock import SystemClock
from app.domain.events.run_events import StepEnd, TextDelta
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.threads import messages
from tests.support.forwarders import forwarding
from tests.support.stored_runs import checkpoint_of, done, logged_seqs, running
from tests.support.voices import PATIENCE, writing

pytestmark = pytest.mark.anyio


class MovedClock:
    """Goes by hand."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def move(self, by: timedelta) -> None:
        self._now += by

    def now(self) -> datetime:
        return self._now


@pytest.mark.parametrize("by", [timedelta(0), timedelta(hours=-1)], ids=["still", "put back"])
async def test_what_is_lost_on_its_way_is_said_again_whatever_the_clock_shows(
    database_url: str, by: timedelta
) -> None:
    """What has landed is told by its instant: two of them must never have the same."""
    clock = MovedClock(SystemClock().now())
    async with forwarding(database_url) as way:
        database = await Database.open(way.url, DatabaseOptions(pool_size=2, hot_pool_size=2))
        try:
            run = await running(database.pool)
            async with writing(database, clock) as voices:
                ears = voices.listen(run)
                journal, _ = voices.of(run)
                journal.emit(TextDelta("it arrives"), 1)
                await ears.next(PATIENCE)
                clock.move(by)
                way.lose(b"it is lost")
                journal.emit(TextDelta("it is lost"), 2)
                await ears.next(PATIENCE)
                clock.move(by)
                way.lose(b"so is this")
                await journal.commit(
                    checkpoint_of(run, "so is this", state=done(), said=[StepEnd()])
                )
            assert way.cuts == 2
            assert await logged_seqs(database.pool, run) == [1, 2, 3, 4]
            log = await messages.history(database.pool, run.tenant, run.thread_id)
            assert [entry.message.text for entry in log] == ["Hello", "so is this"]
            assert await database.pool.fetchval("SELECT status FROM runs") == "done"
        finally:
            await database.close()
