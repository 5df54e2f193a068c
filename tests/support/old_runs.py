"""Runs that ended long ago, by the statements that real ones use."""

from collections.abc import Sequence
from datetime import timedelta

import asyncpg

from app.clock import SystemClock
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_events import RunFinish
from app.domain.ids import ThreadId
from app.domain.runs.runs import NewRun
from app.storage.checkpoints import batched
from app.storage.events import batched_append
from app.storage.events.batched_append import Flush
from app.storage.postgres.database import RawPool
from tests.support.stored_runs import (
    admit,
    checkpoint_of,
    done,
    entries_of,
    running,
    some_run,
    worker,
)

LONG = timedelta(days=40)
_ENDED = "UPDATE runs SET finished_at = finished_at - $2::interval WHERE id = $1"
_OLD = f"""
WITH run AS ({_ENDED})
UPDATE events SET ts = ts - $2::interval WHERE run_id = $1
"""


async def emit_events(
    pool: RawPool, run: NewRun, *emitted: AgentEvent, step: int | None = 1
) -> None:
    """Log events of a run at attempt 1, each under a number of its own."""
    flush = Flush(run.tenant, run.thread_id, run.id, 1, entries_of(*emitted, step=step))
    assert await batched_append.flush(pool, [flush], SystemClock().now())


async def end(pool: RawPool, run: NewRun) -> None:
    finish = entries_of(RunFinish({}, "done", {"type": "natural_end"}, "succeeded"), step=None)
    next_seq = await pool.fetchval(
        "SELECT next_message_seq FROM threads WHERE tenant = $1 AND id = $2",
        run.tenant,
        run.thread_id,
    )
    saved = checkpoint_of(run, state=done(), next_seq=next_seq)
    assert await batched.checkpoint(pool, [(saved, finish)], SystemClock().now())


async def age(pool: RawPool, run: NewRun, by: timedelta = LONG) -> None:
    """Move the end of a run into the past."""
    await pool.execute(_OLD, run.id, by)


async def backdate_end(url: str, run_id: str) -> None:
    """Move the end of an executed run into the past; its events stay unchanged."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_ENDED, run_id, LONG)
    finally:
        await connection.close()


async def old_run(
    pool: RawPool, emitted: Sequence[AgentEvent], *, thread_id: ThreadId | None = None
) -> NewRun:
    """A run with these events that ended long ago."""
    if thread_id is None:
        run = await running(pool)
    else:
        run = some_run(thread_id=thread_id)
        assert await admit(pool, run, await worker(pool)) is not None
    if emitted:
        await emit_events(pool, run, *emitted)
    await end(pool, run)
    await age(pool, run)
    return run
