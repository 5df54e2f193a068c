"""A batched statement that waited for a lock uses the rows as they are after the wait."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from app.clock import SystemClock, new_id
from app.domain.ids import InputId
from app.domain.runs.runs import NewRun
from app.storage.checkpoints import batched
from app.storage.checkpoints.batched import CheckpointWritten
from app.storage.events import batched_append
from app.storage.postgres.database import Database, RawPool
from app.storage.postgres.open_connections import TimedConnection
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
_WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
def pool(database: Database) -> RawPool:
    return database.pool


@asynccontextmanager
async def other_transaction(pool: RawPool) -> AsyncIterator[TimedConnection]:
    """Another transaction, committed when the block ends."""
    async with pool.acquire() as connection, connection.transaction():
        yield connection


async def lock_thread(connection: TimedConnection, run: NewRun) -> None:
    await connection.execute(
        "SELECT FROM threads WHERE tenant = $1 AND id = $2 FOR NO KEY UPDATE",
        *(run.tenant, run.thread_id),
    )


class BlockedStatements:
    """Statements that wait for a lock."""

    def __init__(self, pool: RawPool, group: asyncio.TaskGroup) -> None:
        self._pool = pool
        self._group = group
        self._count = 0

    async def start(self, statement: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begins the statement, and returns once it waits for a lock."""
        task = self._group.create_task(statement)
        self._count += 1

        async def is_blocked() -> bool:
            assert not task.done(), "the statement didn't wait for a lock"
            waiting: int = await self._pool.fetchval(_WAITING)
            return waiting >= self._count

        await eventually(is_blocked)
        return task


@pytest.fixture
async def blocked(pool: RawPool) -> AsyncIterator[BlockedStatements]:
    async with asyncio.TaskGroup() as group:
        yield BlockedStatements(pool, group)


async def result_of(task: "asyncio.Task[T]") -> T:
    return await asyncio.wait_for(task, 20)


async def test_a_start_that_waited_finds_the_thread_occupied(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    first = some_run()
    second = some_run(thread_id=first.thread_id)
    new_owner = await worker(pool)
    async with other_transaction(pool) as connection:
        await connection.execute(
            "INSERT INTO threads (tenant, id, open_run_id) VALUES ($1, $2, $3)",
            *(first.tenant, first.thread_id, first.id),
        )
        result = await blocked.start(admit(pool, second, new_owner))
    assert await result_of(result) is None
    assert await sizes(pool) == {"threads": 1, "workers": 1}


async def test_a_start_that_waited_appends_behind_newer_messages(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    run = await running(pool)
    async with other_transaction(pool) as connection:
        await connection.execute("UPDATE threads SET open_run_id = NULL, next_message_seq = 40")
        await connection.execute(
            "UPDATE runs SET status = 'done', owner = NULL, termination = '{}', finished_at = now()"
        )
        await connection.execute("UPDATE event_heads SET next_seq = 50, run_id = NULL")
        following = some_run("a", "b", thread_id=run.thread_id)
        result = await blocked.start(admit(pool, following, await worker(pool)))
    admitted = await result_of(result)
    assert admitted is not None
    assert (admitted.first_message_seq, admitted.event_seq) == (40, 50)
    assert await pool.fetchval("SELECT next_message_seq FROM threads") == 42
    assert await pool.fetchval("SELECT next_seq FROM event_heads") == 51


async def enqueue(database: Database, run: NewRun) -> None:
    """A queued run with inputs that no worker has claimed."""
    async with database.transaction() as connection:
        await threads.create(connection, run.tenant, run.thread_id)
        await runs.insert_created(connection, run, admitted=True, events_from=1, at=NOW())
        waiting = [(InputId(new_id()), message) for message in run.messages]
        await inputs.queue(connection, run.tenant, run.thread_id, run.id, waiting)


async def test_a_claim_that_waited_appends_behind_newer_messages(
    database: Database, pool: RawPool, blocked: BlockedStatements
) -> None:
    run = some_run("a", "b")
    await enqueue(database, run)
    async with other_transaction(pool) as connection:
        await connection.execute("UPDATE threads SET next_message_seq = 7")
        result = await blocked.start(
            claims.claim(pool, run.tenant, run.thread_id, run.id, await worker(pool), TIMEOUT)
        )
    claimed = await result_of(result)
    assert claimed is not None
    assert claimed.next_message_seq == 9
    assert [row["seq"] for row in await pool.fetch("SELECT seq FROM messages ORDER BY 1")] == [7, 8]


async def test_a_claim_that_waited_takes_no_input_that_was_taken_or_retracted(
    database: Database, pool: RawPool, blocked: BlockedStatements
) -> None:
    run = some_run("a", "b", "c")
    await enqueue(database, run)
    async with other_transaction(pool) as connection:
        await lock_thread(connection, run)
        await connection.execute("UPDATE inputs SET status = 'retracted' WHERE position = 1")
        await connection.execute(
            "UPDATE inputs SET status = 'consumed', consumed_seq = 1 WHERE position = 3"
        )
        result = await blocked.start(
            claims.claim(pool, run.tenant, run.thread_id, run.id, await worker(pool), TIMEOUT)
        )
    claimed = await result_of(result)
    assert claimed is not None
    assert claimed.record.input is not None
    assert claimed.record.input.trigger_message_ids == (run.messages[1].id,)


async def test_a_claim_that_waited_finds_the_live_owner(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    lost = await worker(pool)
    run = await running(pool, lost)
    await die(pool, lost)
    first, second = await worker(pool), await worker(pool)
    async with other_transaction(pool) as connection:
        await lock_thread(connection, run)
        result = [
            await blocked.start(
                claims.claim(pool, run.tenant, run.thread_id, run.id, new_owner, TIMEOUT)
            )
            for new_owner in (first, second)
        ]
    answers = [await result_of(one) for one in result]
    [claimed] = [answer for answer in answers if answer is not None]
    assert (claimed.record.attempt, claimed.record.losses) == (2, 1)


async def test_a_claim_that_waited_finds_the_run_ended(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    lost = await worker(pool)
    run = await running(pool, lost)
    await die(pool, lost)
    async with other_transaction(pool) as connection:
        await lock_thread(connection, run)
        await connection.execute(
            "UPDATE runs SET status = 'done', owner = NULL, termination = '{}', finished_at = now()"
        )
        result = await blocked.start(
            claims.claim(pool, run.tenant, run.thread_id, run.id, await worker(pool), TIMEOUT)
        )
    assert await result_of(result) is None
    assert await pool.fetchval("SELECT attempt FROM runs") == 1


async def test_a_checkpoint_that_waited_finds_the_run_taken_over(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    lost = await worker(pool)
    run = await running(pool, lost)
    await die(pool, lost)
    writes = [(checkpoint_of(run, "too late"), deltas("too late"))]
    async with other_transaction(pool) as connection:
        await lock_thread(connection, run)
        await connection.execute("UPDATE runs SET attempt = 2")
        await connection.execute("UPDATE event_heads SET attempt = 2")
        result = await blocked.start(batched.checkpoint(pool, writes, NOW()))
    assert await result_of(result) == {}
    assert (await sizes(pool))["messages"] == 1


@pytest.mark.parametrize("lock", ["runs", "event_heads"])
async def test_a_checkpoint_that_waited_for_a_later_lock_finds_the_run_taken_over(
    pool: RawPool, blocked: BlockedStatements, lock: str
) -> None:
    run = await running(pool)
    writes = [(checkpoint_of(run, "too late"), deltas("too late"))]
    async with other_transaction(pool) as connection:
        await connection.execute(f"UPDATE {lock} SET attempt = 2")
        result = await blocked.start(batched.checkpoint(pool, writes, NOW()))
    assert await result_of(result) == {}
    assert (await sizes(pool))["messages"] == 1
    assert await pool.fetchval("SELECT next_message_seq FROM threads") == 2


async def test_an_end_that_waited_finds_a_queued_run(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    run = await running(pool)
    writes = [(checkpoint_of(run, "Bye", state=done()), deltas("Bye"))]
    async with other_transaction(pool) as connection:
        await connection.execute("UPDATE threads SET queue_length = 1")
        result = await blocked.start(batched.checkpoint(pool, writes, NOW()))
    assert await result_of(result) == {}
    assert await pool.fetchval("SELECT open_run_id FROM threads") == run.id


@pytest.mark.parametrize("counter", ["unread_inputs", "open_tasks"])
async def test_an_end_that_waited_finds_new_inputs(
    pool: RawPool, blocked: BlockedStatements, counter: str
) -> None:
    run = await running(pool)
    writes = [(checkpoint_of(run, "Bye", state=done()), deltas("Bye"))]
    async with other_transaction(pool) as connection:
        await connection.execute(f"UPDATE runs SET {counter} = 1")
        result = await blocked.start(batched.checkpoint(pool, writes, NOW()))
    assert await result_of(result) == {}
    assert await pool.fetchval("SELECT status FROM runs") == "running"


async def test_a_step_that_waited_finds_new_inputs(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    run = await running(pool)
    async with other_transaction(pool) as connection:
        await connection.execute("UPDATE runs SET unread_inputs = 2, open_tasks = 1")
        result = await blocked.start(
            batched.checkpoint(pool, [(checkpoint_of(run, "Hi"), [])], NOW())
        )
    assert await result_of(result) == {0: CheckpointWritten(2, unread_inputs=2, open_tasks=1)}


async def test_a_claim_keeps_the_count_of_inputs_that_it_did_not_see(
    database: Database, pool: RawPool, blocked: BlockedStatements
) -> None:
    run = some_run("a")
    await enqueue(database, run)
    async with other_transaction(pool) as connection:
        await connection.execute("UPDATE runs SET unread_inputs = unread_inputs + 1")
        result = await blocked.start(
            claims.claim(pool, run.tenant, run.thread_id, run.id, await worker(pool), TIMEOUT)
        )
    claimed = await result_of(result)
    assert claimed is not None
    assert claimed.record.unread_inputs == 1


async def test_a_checkpoint_that_waited_numbers_its_events_behind_newer_ones(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    run = await running(pool)
    writes = [(checkpoint_of(run, "Hi"), deltas("one", "two"))]
    async with other_transaction(pool) as connection:
        await connection.execute("UPDATE event_heads SET next_seq = 10")
        result = await blocked.start(batched.checkpoint(pool, writes, NOW()))
    assert await result_of(result) == {0: CheckpointWritten(10)}
    assert await logged_seqs(pool, run) == [1, 10, 11]
    assert await pool.fetchval("SELECT next_seq FROM event_heads") == 12


async def test_a_blocked_entry_does_not_change_the_results_of_the_others(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    """A whole group waits for its slowest entry; each entry's result depends on its own rows."""
    group = [await running(pool) for _ in range(3)]
    writes = [(checkpoint_of(run, "Hi"), deltas("Hi")) for run in group]
    async with other_transaction(pool) as connection:
        await lock_thread(connection, group[1])
        await connection.execute("UPDATE runs SET attempt = 2 WHERE id = $1", group[1].id)
        result = await blocked.start(batched.checkpoint(pool, writes, NOW()))
        flushed = await batched_append.flush(pool, [flush_of(run, "x") for run in group], NOW())
        assert flushed == {0: 2, 1: 2, 2: 2}
    assert await result_of(result) == {0: CheckpointWritten(3), 2: CheckpointWritten(3)}


async def test_a_statement_of_a_dead_connection_is_waited_for(
    pool: RawPool, blocked: BlockedStatements
) -> None:
    """Postgres may still execute a statement whose client connection has died."""
    run, at = await running(pool), NOW()
    keys = [(run.tenant, run.thread_id, run.id)]
    async with other_transaction(pool) as connection:
        await lock_thread(connection, run)
        working = await blocked.start(
            batched.checkpoint(pool, [(checkpoint_of(run, "Hi"), deltas("Hi"))], at)
        )
        blocked_reader = await blocked.start(batched_append.find_committed(pool, keys, at))
    assert await result_of(working) == {0: CheckpointWritten(2)}
    assert await result_of(blocked_reader) == {0: 2}
