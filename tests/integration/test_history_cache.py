"""A run reads only the new messages of its thread, and always gets the same log as by reading all."""

import random

import pytest

from app.domain.runs.runs import NewRun, RunRecord
from app.domain.threads.messages import LoggedMessage, Role
from app.storage.postgres.database import Database, RawPool
from app.storage.runs import runs
from app.storage.threads import messages
from app.workers.history_cache import HistoryCache
from tests.support.stored_runs import message, running

pytestmark = pytest.mark.anyio


class Process:
    """A process with a cache of its own."""

    def __init__(self, database: Database, max_bytes: int = 1_000_000) -> None:
        self.cache = HistoryCache(max_bytes)
        self._database = database
        self.read_messages = 0

    async def load(self, record: RunRecord) -> list[LoggedMessage]:
        log, read = await self.cache.load(self._database.pool, record)
        self.read_messages += len(read.log)
        return log


async def record_of(database: Database, run: NewRun) -> RunRecord:
    async with database.reading() as connection:
        found = await runs.get(connection, run.tenant, run.id)
    assert found is not None
    return found


async def append(database: Database, run: NewRun, *texts: str) -> None:
    async with database.transaction() as connection:
        next_seq = await connection.driver.fetchval(
            "UPDATE threads SET next_message_seq = next_message_seq + $2 WHERE id = $1 "
            "RETURNING next_message_seq - $2",
            *(run.thread_id, len(texts)),
        )
        new = [message(text, Role.ASSISTANT) for text in texts]
        await messages.append(connection, run.tenant, run.thread_id, next_seq, new)


async def roll_back(database: Database, run: NewRun, first: int, last: int) -> None:
    await database.pool.execute(
        "INSERT INTO rollbacks (tenant, thread_id, from_seq, to_seq, run_id, by_run_id) "
        "VALUES ($1, $2, $3, $4, $5, $5)",
        *(run.tenant, run.thread_id, first, last, run.id),
    )


async def all_of(pool: RawPool, run: NewRun) -> list[LoggedMessage]:
    return await messages.history(pool, run.tenant, run.thread_id)


async def test_only_new_messages_are_read(database: Database) -> None:
    run = await running(database.pool)
    record = await record_of(database, run)
    process = Process(database)
    await append(database, run, *"abcdefgh")
    assert await process.load(record) == await all_of(database.pool, run)
    assert process.read_messages == 9
    await append(database, run, "i")
    assert await process.load(record) == await all_of(database.pool, run)
    assert process.read_messages == 11, "the last known message, and the new one"


@pytest.mark.parametrize("seed", range(4))
async def test_two_processes_that_alternate_read_the_same_log(
    database: Database, seed: int
) -> None:
    chance = random.Random(seed)
    run = await running(database.pool)
    record = await record_of(database, run)
    processes = [Process(database), Process(database)]
    end = 1
    rolled_back = 1
    for turn in range(30):
        if chance.random() < 0.7:
            count = chance.randint(1, 3)
            await append(database, run, *(f"{turn}.{each}" for each in range(count)))
            end += count
        elif end > rolled_back:
            first = chance.randint(rolled_back + 1, end)
            await roll_back(database, run, first, end)
            rolled_back = end
        if chance.random() < 0.8:
            log = await chance.choice(processes).load(record)
            assert log == await all_of(database.pool, run)
    for process in processes:
        assert await process.load(record) == await all_of(database.pool, run)


async def test_a_new_thread_with_the_same_id_has_none_of_the_old_messages(
    database: Database,
) -> None:
    run = await running(database.pool)
    record = await record_of(database, run)
    process = Process(database)
    await append(database, run, "old", "older")
    await process.load(record)
    await database.pool.execute("DELETE FROM threads")
    await database.pool.execute(
        "INSERT INTO threads (tenant, id) VALUES ($1, $2)", run.tenant, run.thread_id
    )
    await append(database, run, "new", "newer", "newest")
    assert await process.load(record) == await all_of(database.pool, run)


async def test_messages_that_a_failover_lost_are_not_remembered(database: Database) -> None:
    run = await running(database.pool)
    record = await record_of(database, run)
    process = Process(database)
    await append(database, run, "kept", "lost", "lost, too")
    await process.load(record)
    await database.pool.execute("DELETE FROM messages WHERE seq > 2")
    await database.pool.execute("UPDATE threads SET next_message_seq = 3")
    assert await process.load(record) == await all_of(database.pool, run)
    await append(database, run, "another", "and another", "one more")
    other = Process(database)
    assert await process.load(record) == await other.load(record)


async def test_the_cache_keeps_what_was_used_last_within_its_bytes(database: Database) -> None:
    threads = [await running(database.pool) for _ in range(3)]
    process = Process(database, max_bytes=25_000)
    for run in threads:
        await append(database, run, "x" * 10_000)
        await process.load(await record_of(database, run))
    assert process.cache.size <= 25_000
    known = [process.cache.get((run.tenant, run.thread_id)) is not None for run in threads]
    assert known == [False, True, True]
    await append(database, threads[2], "x" * 30_000)
    await process.load(await record_of(database, threads[2]))
    assert process.cache.get((threads[2].tenant, threads[2].thread_id)) is None


async def test_a_long_log_is_decoded_step_by_step(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    yields: list[int] = []

    async def yield_to_loop() -> None:
        yields.append(1)

    monkeypatch.setattr(messages, "yield_to_loop", yield_to_loop)
    run = await running(database.pool)
    await append(database, run, *["x" * 100_000] * 6)
    log = await all_of(database.pool, run)
    assert [len(entry.message.content[0].text) for entry in log[1:]] == [100_000] * 6  # type: ignore[union-attr]
    assert len(yields) == 2
