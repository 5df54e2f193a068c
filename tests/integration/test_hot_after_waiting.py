"""A hot statement that had to wait for a lock goes by what it finds then, not by what it saw before."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import asyncpg
import pytest

from app.clock import SystemClock, new_id
from app.domain.ids import InputId
from app.domain.runs.runs import NewRun
from app.storage.checkpoints import batched
from app.storage.checkpoints.batched import CheckpointWritten
from app.storage.events import batched_append
from app.storage.postgres.database import Database, RawPool
from app.storage.runs import claims, runs
from app.storage.threads import inputs, threads
from tests.support.conditions import eventually
from tests.support.rows import sizes
from tests.support.stored_runs import (
    TIMEOUT,
    admit,
    checkpoint_of,
    deltas,
    die,
    done,
    flush_of,
    logged_seqs,
    running,
    some_run,
    worker,
)

pytestmark = pytest.mark.anyio

NOW = SystemClock().now
T = TypeVar("T")
PooledConnection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
_WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
def pool(database: Database) -> RawPool:
    return database.pool


@asynccontextmanager
async def in_the_way(pool: RawPool) -> AsyncIterator[PooledConnection]:
    """Another transaction, committed when the block ends."""
    async with pool.acquire() as connection, connection.transaction():
        yield connection


async def lock_thread(connection: PooledConnection, run: NewRun) -> None:
    await connection.execute(
        "SELECT FROM threads WHERE tenant = $1 AND id = $2 FOR NO KEY UPDATE",
        *(run.tenant, run.thread_id),
    )


class Begun:
    """Statements that stand in line for a lock."""

    def __init__(self, pool: RawPool, group: asyncio.TaskGroup) -> None:
        self._pool = pool
        self._group = group
        self._count = 0

    async def waits(self, statement: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin it, and see it wait."""
        task = self._group.create_task(statement)
        self._count += 1

        async def look() -> bool:
            assert not task.done(), "it didn't wait"
            waiting: int = await self._pool.fetchval(_WAITING)
            return waiting >= self._count

        await eventually(look)
        return task


@pytest.fixture
async def begun(pool: RawPool) -> AsyncIterator[Begun]:
    async with asyncio.TaskGroup() as group:
        yield Begun(pool, group)


async def ran(task: "asyncio.Task[T]") -> T:
    return await asyncio.wait_for(task, 20)


async def test_a_start_finds_the_thread_taken(pool: RawPool, begun: Begun) -> None:
    first = some_run()
    second = some_run(thread_id=first.thread_id)
    me = await worker(pool)
    async with in_the_way(pool) as connection:
        await connection.execute(
            "INSERT INTO threads (tenant, id, open_run_id) VALUES ($1, $2, $3)",
            *(first.tenant, first.thread_id, first.id),
        )
        late = await begun.waits(admit(pool, second, me))
    assert await ran(late) is None
    assert await sizes(pool) == {"threads": 1, "workers": 1}


async def test_a_start_goes_on_behind_what_was_appended(pool: RawPool, begun: Begun) -> None:
    run = await running(pool)
    async with in_the_way(pool) as connection:
        await connection.execute("UPDATE threads SET open_run_id = NULL, next_message_seq = 40")
        await connection.execute(
            "UPDATE runs SET status = 'done', owner = NULL, termination = '{}', finished_at = now()"
        )
        await connection.execute("UPDATE event_heads SET next_seq = 50, run_id = NULL")
        following = some_run("a", "b", thread_id=run.thread_id)
        late = await begun.waits(admit(pool, following, await worker(pool)))
    admitted = await ran(late)
    assert admitted is not None
    assert (admitted.first_message_seq, admitted.event_seq) == (40, 50)
    assert await pool.fetchval("SELECT next_message_seq FROM threads") == 42
    assert await pool.fetchval("SELECT next_seq FROM event_heads") == 51


async def line_up(database: Database, run: NewRun) -> None:
    """A run with inputs that nobody has claimed."""
    async with database.transaction() as connection:
        await threads.create(connection, run.tenant, run.thread_id)
        await runs.insert_created(connection, run, admitted=True, events_from=1, at=NOW())
        waiting = [(InputId(new_id()), message) for message in run.messages]
        await inputs.queue(connection, run.tenant, run.thread_id, run.id, waiting)


async def test_a_claim_appends_behind_what_was_appended(
    database: Database, pool: RawPool, begun: Begun
) -> None:
    run = some_run("a", "b")
    await line_up(database, run)
    async with in_the_way(pool) as connection:
        await connection.execute("UPDATE threads SET next_message_seq = 7")
        late = await begun.waits(
            claims.claim(pool, run.tenant, run.thread_id, run.id, await worker(pool), TIMEOUT)
        )
    claimed = await ran(late)
    assert claimed is not None
    assert claimed.next_message_seq == 9
    assert [row["seq"] for row in await pool.fetch("SELECT seq FROM messages ORDER BY 1")] == [7, 8]


async def test_a_claim_takes_no_input_that_was_taken_or_retracted(
    database: Database, pool: RawPool, begun: Begun
) -> None:
    run = some_run("a", "b", "c")
    await line_up(database, run)
    async with in_the_way(pool) as connection:
        await lock_thread(connection, run)
        await connection.execute("UPDATE inputs SET status = 'retracted' WHERE position = 1")
        await connection.execute(
            "UPDATE inputs SET status = 'consumed', consumed_seq = 1 WHERE position = 3"
        )
        late = await begun.waits(
            claims.claim(pool, run.tenant, run.thread_id, run.id, await worker(pool), TIMEOUT)
        )
    claimed = await ran(late)
    assert claimed is not None
    assert claimed.record.input is not None
    assert claimed.record.input.trigger_message_ids == (run.messages[1].id,)


async def test_a_claim_finds_a_live_owner(pool: RawPool, begun: Begun) -> None:
    lost = await worker(pool)
    run = await running(pool, lost)
    await die(pool, lost)
    first, second = await worker(pool), await worker(pool)
    async with in_the_way(pool) as connection:
        await lock_thread(connection, run)
        late = [
            await begun.waits(claims.claim(pool, run.tenant, run.thread_id, run.id, me, TIMEOUT))
            for me in (first, second)
        ]
    answers = [await ran(one) for one in late]
    [claimed] = [answer for answer in answers if answer is not None]
    assert (claimed.record.attempt, claimed.record.losses) == (2, 1)


async def test_a_claim_finds_the_run_ended(pool: RawPool, begun: Begun) -> None:
    lost = await worker(pool)
    run = await running(pool, lost)
    await die(pool, lost)
    async with in_the_way(pool) as connection:
        await lock_thread(connection, run)
        await connection.execute(
            "UPDATE runs SET status = 'done', owner = NULL, termination = '{}', finished_at = now()"
        )
        late = await begun.waits(
            claims.claim(pool, run.tenant, run.thread_id, run.id, await worker(pool), TIMEOUT)
        )
    assert await ran(late) is None
    assert await pool.fetchval("SELECT attempt FROM runs") == 1


async def test_a_checkpoint_finds_the_run_taken_over(pool: RawPool, begun: Begun) -> None:
    lost = await worker(pool)
    run = await running(pool, lost)
    await die(pool, lost)
    writes = [(checkpoint_of(run, "too late"), deltas("too late"))]
    async with in_the_way(pool) as connection:
        await lock_thread(connection, run)
        await connection.execute("UPDATE runs SET attempt = 2")
        await connection.execute("UPDATE event_heads SET attempt = 2")
        late = await begun.waits(batched.checkpoint(pool, writes, NOW()))
    assert await ran(late) == {}
    assert (await sizes(pool))["messages"] == 1


@pytest.mark.parametrize("lock", ["runs", "event_heads"])
async def test_a_checkpoint_that_holds_the_first_locks_already_finds_it_too(
    pool: RawPool, begun: Begun, lock: str
) -> None:
    run = await running(pool)
    writes = [(checkpoint_of(run, "too late"), deltas("too late"))]
    async with in_the_way(pool) as connection:
        await connection.execute(f"UPDATE {lock} SET attempt = 2")
        late = await begun.waits(batched.checkpoint(pool, writes, NOW()))
    assert await ran(late) == {}
    assert (await sizes(pool))["messages"] == 1
    assert await pool.fetchval("SELECT next_message_seq FROM threads") == 2


async def test_an_end_finds_somebody_in_line(pool: RawPool, begun: Begun) -> None:
    run = await running(pool)
    writes = [(checkpoint_of(run, "Bye", state=done()), deltas("Bye"))]
    async with in_the_way(pool) as connection:
        await connection.execute("UPDATE threads SET queue_length = 1")
        late = await begun.waits(batched.checkpoint(pool, writes, NOW()))
    assert await ran(late) == {}
    assert await pool.fetchval("SELECT open_run_id FROM threads") == run.id


@pytest.mark.parametrize("counter", ["unread_inputs", "open_tasks"])
async def test_an_end_finds_what_has_come_in(pool: RawPool, begun: Begun, counter: str) -> None:
    run = await running(pool)
    writes = [(checkpoint_of(run, "Bye", state=done()), deltas("Bye"))]
    async with in_the_way(pool) as connection:
        await connection.execute(f"UPDATE runs SET {counter} = 1")
        late = await begun.waits(batched.checkpoint(pool, writes, NOW()))
    assert await ran(late) == {}
    assert await pool.fetchval("SELECT status FROM runs") == "running"


async def test_a_step_finds_what_has_come_in(pool: RawPool, begun: Begun) -> None:
    run = await running(pool)
    async with in_the_way(pool) as connection:
        await connection.execute("UPDATE runs SET unread_inputs = 2, open_tasks = 1")
        late = await begun.waits(batched.checkpoint(pool, [(checkpoint_of(run, "Hi"), [])], NOW()))
    assert await ran(late) == {0: CheckpointWritten(2, unread_inputs=2, open_tasks=1)}


async def test_a_claim_leaves_counted_what_it_did_not_see(
    database: Database, pool: RawPool, begun: Begun
) -> None:
    run = some_run("a")
    await line_up(database, run)
    async with in_the_way(pool) as connection:
        await connection.execute("UPDATE runs SET unread_inputs = unread_inputs + 1")
        late = await begun.waits(
            claims.claim(pool, run.tenant, run.thread_id, run.id, await worker(pool), TIMEOUT)
        )
    claimed = await ran(late)
    assert claimed is not None
    assert claimed.record.unread_inputs == 1


async def test_a_checkpoint_is_numbered_behind_what_was_said(pool: RawPool, begun: Begun) -> None:
    run = await running(pool)
    writes = [(checkpoint_of(run, "Hi"), deltas("one", "two"))]
    async with in_the_way(pool) as connection:
        await connection.execute("UPDATE event_heads SET next_seq = 10")
        late = await begun.waits(batched.checkpoint(pool, writes, NOW()))
    assert await ran(late) == {0: CheckpointWritten(10)}
    assert await logged_seqs(pool, run) == [1, 10, 11]
    assert await pool.fetchval("SELECT next_seq FROM event_heads") == 12


async def test_one_that_waits_doesnt_change_what_the_others_get(
    pool: RawPool, begun: Begun
) -> None:
    """All of a group wait for the slowest; each is judged by what it finds."""
    group = [await running(pool) for _ in range(3)]
    writes = [(checkpoint_of(run, "Hi"), deltas("Hi")) for run in group]
    async with in_the_way(pool) as connection:
        await lock_thread(connection, group[1])
        await connection.execute("UPDATE runs SET attempt = 2 WHERE id = $1", group[1].id)
        late = await begun.waits(batched.checkpoint(pool, writes, NOW()))
        flushed = await batched_append.flush(pool, [flush_of(run, "x") for run in group], NOW())
        assert flushed == {0: 2, 1: 2, 2: 2}
    assert await ran(late) == {0: CheckpointWritten(3), 2: CheckpointWritten(3)}


async def test_what_is_in_doubt_is_waited_for(pool: RawPool, begun: Begun) -> None:
    """A server may still be at work for a client whose connection has died."""
    run, at = await running(pool), NOW()
    keys = [(run.tenant, run.thread_id, run.id)]
    async with in_the_way(pool) as connection:
        await lock_thread(connection, run)
        working = await begun.waits(
            batched.checkpoint(pool, [(checkpoint_of(run, "Hi"), deltas("Hi"))], at)
        )
        doubting = await begun.waits(batched_append.find_committed(pool, keys, at))
    assert await ran(working) == {0: CheckpointWritten(2)}
    assert await ran(doubting) == {0: 2}
