"""A writer whose clock stands still or jumps back still writes a correct log."""

from datetime import datetime, timedelta

import pytest

from app.clock import SystemClock
from app.domain.events.step_events import StepEnd, TextDelta
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.threads import messages
from tests.support.emitters import TIMEOUT_SECONDS, writing
from tests.support.forwarders import forwarding
from tests.support.stored_runs import checkpoint_of, done, logged_seqs, running

pytestmark = pytest.mark.anyio


class MovedClock:
    """A clock that a test moves."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def move(self, by: timedelta) -> None:
        self._now += by

    def now(self) -> datetime:
        return self._now


@pytest.mark.parametrize("by", [timedelta(0), timedelta(hours=-1)], ids=["still", "put back"])
async def test_a_flush_whose_reply_was_lost_is_published_once_for_any_clock(
    database_url: str, by: timedelta
) -> None:
    """Committed flushes are found by their timestamp, so each needs a different one."""
    clock = MovedClock(SystemClock().now())
    async with forwarding(database_url) as forwarder:
        database = await Database.open(forwarder.url, DatabaseOptions(pool_size=2, hot_pool_size=2))
        try:
            run = await running(database.pool)
            async with writing(database, clock) as emitters:
                subscription = emitters.listen(run)
                journal, _ = emitters.of(run)
                journal.emit(TextDelta("it arrives"), 1)
                await subscription.next(TIMEOUT_SECONDS)
                clock.move(by)
                forwarder.lose(b"it is lost")
                journal.emit(TextDelta("it is lost"), 2)
                await subscription.next(TIMEOUT_SECONDS)
                clock.move(by)
                forwarder.lose(b"so is this")
                await journal.commit(
                    checkpoint_of(run, "so is this", state=done(), emitted=[StepEnd()])
                )
            assert forwarder.cuts == 2
            assert await logged_seqs(database.pool, run) == [1, 2, 3, 4]
            log = await messages.history(database.pool, run.tenant, run.thread_id)
            assert [entry.message.text for entry in log] == ["Hello", "so is this"]
            assert await database.pool.fetchval("SELECT status FROM runs") == "done"
        finally:
            await database.close()
