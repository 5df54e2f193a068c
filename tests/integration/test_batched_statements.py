"""The four batched statements: all or nothing, and for one owner at a time under concurrency."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from app.clock import SystemClock, new_id
from app.domain.events.run_events import RunFinish
from app.domain.events.step_events import StepEnd
from app.domain.ids import InputId, Tenant, ThreadId, WorkerId
from app.domain.runs.runs import NewRun, Running, RunStatus
from app.domain.threads.messages import MessageRange
from app.domain.tools.tool_calls import CallStatus
from app.storage.checkpoints import batched, single
from app.storage.checkpoints.batched import CheckpointWritten
from app.storage.checkpoints.single import OwnershipMismatch
from app.storage.events import batched_append, event_log
from app.storage.postgres.database import Database, RawPool
from app.storage.runs import claims, runs
from app.storage.runs.claims import AdmittedRow, ClaimedRow
from app.storage.threads import inputs, messages, threads
from tests.support.rows import contents, sizes
from tests.support.stored_runs import (
    TIMEOUT,
    admit,
    call_of,
    checkpoint_of,
    deltas,
    die,
    done,
    entries_of,
    flush_of,
    logged_seqs,
    running,
    some_run,
    suspended,
    taken_over,
    ticket_of,
    worker,
)

pytestmark = pytest.mark.anyio

NOW = SystemClock().now


@pytest.fixture
def pool(database: Database) -> RawPool:
    return database.pool


async def claim(pool: RawPool, run: NewRun, owner: WorkerId) -> ClaimedRow | None:
    return await claims.claim(pool, run.tenant, run.thread_id, run.id, owner, TIMEOUT)


async def release(database: Database, run: NewRun, attempt: int = 1) -> None:
    async with database.transaction() as connection:
        assert await runs.release(connection, run.tenant, run.id, attempt, failed=False)


async def enqueue(database: Database, run: NewRun, *, admitted: bool = True) -> None:
    """Enqueue a run. Its messages wait for the claim."""
    async with database.transaction() as connection:
        await threads.create(connection, run.tenant, run.thread_id)
        assert await runs.insert_created(
            connection, run, admitted=admitted, events_from=1, at=NOW()
        )
        waiting = [(InputId(new_id()), message) for message in run.messages]
        await inputs.queue(connection, run.tenant, run.thread_id, run.id, waiting)
        emitted = [(run.id, entry) for entry in deltas("created")]
        await event_log.append_events(connection, run.tenant, run.thread_id, emitted, NOW())


@asynccontextmanager
async def holding_head_of(pool: RawPool, run: NewRun) -> AsyncIterator[None]:
    """A command that holds the lock of the event head."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "SELECT FROM event_heads WHERE tenant = $1 AND thread_id = $2 FOR NO KEY UPDATE",
            run.tenant,
            run.thread_id,
        )
        yield


# --- admit ----------------------------------------------------------------------------------------


async def test_admit_writes_thread_run_messages_head_and_event(
    database: Database, pool: RawPool
) -> None:
    owner = await worker(pool)
    run = some_run("Hello", "Are you there?")

    assert await admit(pool, run, owner) == AdmittedRow(first_message_seq=1, event_seq=1)

    assert await sizes(pool) == {
        "workers": 1,
        "threads": 1,
        "runs": 1,
        "messages": 2,
        "event_heads": 1,
        "events": 1,
    }
    async with database.reading() as connection:
        thread = await threads.get(connection, run.tenant, run.thread_id)
        record = await runs.get(connection, run.tenant, run.id)
    log = await messages.history(pool, run.tenant, run.thread_id)
    assert thread is not None
    assert (thread.open_run_id, thread.latest_run_id) == (run.id, run.id)
    assert (thread.next_message_seq, thread.queue_length) == (3, 0)
    assert record is not None
    assert record.state == Running(owner)
    assert (record.attempt, record.losses, record.steps, record.events_from) == (1, 0, 0, 1)
    assert record.metadata == {"of": "a test"}
    assert record.input is not None
    assert record.input.range == MessageRange(1, 2)
    assert record.input.trigger_message_ids == tuple(message.id for message in run.messages)
    assert [(entry.seq, entry.message) for entry in log] == [*enumerate(run.messages, 1)]
    head = await pool.fetchrow("SELECT next_seq, run_id, attempt FROM event_heads")
    assert head is not None
    assert tuple(head) == (2, run.id, 1)
    event = await pool.fetchrow("SELECT seq, run_id, event_type FROM events")
    assert event is not None
    assert tuple(event) == (1, run.id, "run_created")


async def test_an_occupied_thread_admits_no_other_run(pool: RawPool) -> None:
    owner = await worker(pool)
    first = await running(pool, owner)
    before = await contents(pool)
    assert await admit(pool, some_run(thread_id=first.thread_id), owner) is None
    assert await contents(pool) == before


async def test_a_thread_with_queued_runs_admits_no_run_before_them(pool: RawPool) -> None:
    owner = await worker(pool)
    first = await running(pool, owner)
    await batched.checkpoint(pool, [(checkpoint_of(first, "Bye", state=done()), [])], NOW())
    await pool.execute("UPDATE threads SET queue_length = 1")
    before = await contents(pool)
    assert await admit(pool, some_run(thread_id=first.thread_id), owner) is None
    assert await contents(pool) == before


async def test_a_taken_run_id_writes_nothing(pool: RawPool) -> None:
    owner = await worker(pool)
    first = await running(pool, owner)
    before = await contents(pool)
    assert await admit(pool, some_run(run_id=first.id), owner) is None
    assert await contents(pool) == before


async def test_tenants_may_use_the_same_ids(pool: RawPool) -> None:
    owner = await worker(pool)
    first = await running(pool, owner)
    same = some_run(thread_id=first.thread_id, run_id=first.id, tenant=Tenant("other"))
    assert await admit(pool, same, owner) == AdmittedRow(1, 1)


async def test_of_twenty_starts_at_once_one_gets_the_thread(pool: RawPool) -> None:
    owner = await worker(pool)
    thread_id = ThreadId(new_id())
    starts = [some_run(thread_id=thread_id) for _ in range(20)]

    answers = await asyncio.gather(*(admit(pool, run, owner) for run in starts))

    winners = [run for run, answer in zip(starts, answers, strict=True) if answer is not None]
    assert len(winners) == 1
    assert await pool.fetchval("SELECT open_run_id FROM threads") == winners[0].id
    stored = await sizes(pool)
    assert (stored["runs"], stored["messages"], stored["events"]) == (1, 1, 1)


async def test_a_start_continues_the_thread_after_its_last_run(pool: RawPool) -> None:
    owner = await worker(pool)
    first = await running(pool, owner)
    ended = checkpoint_of(first, "Bye", state=done())
    await batched.checkpoint(pool, [(ended, deltas("Bye"))], NOW())
    second = some_run(thread_id=first.thread_id)
    assert await admit(pool, second, owner) == AdmittedRow(first_message_seq=3, event_seq=3)


# --- claim ----------------------------------------------------------------------------------------


async def test_a_run_of_a_live_owner_is_not_claimed(pool: RawPool) -> None:
    run = await running(pool)
    other = await worker(pool)
    before = await contents(pool)
    assert await claim(pool, run, other) is None
    assert await contents(pool) == before


async def test_a_dead_owner_loses_the_run(pool: RawPool) -> None:
    lost = await worker(pool)
    run = await running(pool, lost)
    await die(pool, lost)
    successor = await worker(pool)

    claimed = await claim(pool, run, successor)

    assert claimed is not None
    assert claimed.taken_over
    assert claimed.previous_state is RunStatus.RUNNING
    assert claimed.next_message_seq == 2
    assert claimed.record.state == Running(successor)
    assert (claimed.record.attempt, claimed.record.losses) == (2, 1)
    head = await pool.fetchrow("SELECT next_seq, run_id, attempt FROM event_heads")
    assert head is not None
    assert tuple(head) == (2, run.id, 2)


async def test_an_owner_without_a_worker_row_counts_as_dead(pool: RawPool) -> None:
    run = await running(pool, WorkerId(new_id()))
    claimed = await claim(pool, run, await worker(pool))
    assert claimed is not None
    assert claimed.taken_over


async def test_losses_add_up_until_a_checkpoint(pool: RawPool) -> None:
    run = await running(pool, WorkerId(new_id()))
    for losses in (1, 2, 3):
        claimed = await claim(pool, run, WorkerId(new_id()))
        assert claimed is not None
        assert claimed.record.losses == losses
    marked = checkpoint_of(run, attempt=4, calls=[call_of(run, CallStatus.RUNNING)])
    for write, losses in ((marked, 3), (checkpoint_of(run, attempt=4), 0)):
        assert set(await batched.checkpoint(pool, [(write, [])], NOW())) == {0}
        assert await pool.fetchval("SELECT losses FROM runs") == losses


async def test_a_run_that_was_handed_over_is_not_a_loss(database: Database, pool: RawPool) -> None:
    run = await running(pool)
    await release(database, run)
    claimed = await claim(pool, run, await worker(pool))
    assert claimed is not None
    assert not claimed.taken_over
    assert (claimed.record.attempt, claimed.record.losses) == (2, 0)


async def test_of_ten_claims_at_once_one_gets_the_run(database: Database, pool: RawPool) -> None:
    run = await running(pool)
    await release(database, run)
    candidates = [await worker(pool) for _ in range(10)]

    answers = await asyncio.gather(*(claim(pool, run, one) for one in candidates))

    winners = [answer for answer in answers if answer is not None]
    assert len(winners) == 1
    assert winners[0].record.attempt == 2
    assert await pool.fetchval("SELECT attempt FROM runs") == 2


async def test_inputs_enter_the_log_in_the_order_of_their_positions(
    database: Database, pool: RawPool
) -> None:
    run = some_run("one", "two", "three")
    await enqueue(database, run)
    # Their positions count, not their physical order.
    await pool.execute("UPDATE inputs SET position = 10 - position")

    claimed = await claim(pool, run, await worker(pool))

    ids = tuple(message.id for message in reversed(run.messages))
    assert claimed is not None
    assert claimed.previous_state is RunStatus.CREATED
    assert claimed.next_message_seq == 4
    assert claimed.record.input is not None
    assert claimed.record.input.range == MessageRange(1, 3)
    assert claimed.record.input.trigger_message_ids == ids
    log = await messages.history(pool, run.tenant, run.thread_id)
    assert [(entry.seq, entry.message.id) for entry in log] == [*enumerate(ids, 1)]
    assert await pool.fetchval("SELECT next_message_seq FROM threads") == 4
    consumed = await pool.fetch("SELECT status, consumed_seq FROM inputs ORDER BY position")
    assert [tuple(row) for row in consumed] == [("consumed", 1), ("consumed", 2), ("consumed", 3)]


async def test_inputs_enter_the_log_once(database: Database, pool: RawPool) -> None:
    run = some_run("one", "two")
    await enqueue(database, run)
    first = await claim(pool, run, WorkerId(new_id()))
    second = await claim(pool, run, await worker(pool))
    assert first is not None
    assert second is not None
    assert second.record.input == first.record.input
    assert second.next_message_seq == first.next_message_seq
    assert (await sizes(pool))["messages"] == 2


async def test_a_queued_or_finished_run_is_not_claimed(database: Database, pool: RawPool) -> None:
    owner = await worker(pool)
    queued = some_run()
    await enqueue(database, queued, admitted=False)
    ended = await running(pool, owner)
    await batched.checkpoint(pool, [(checkpoint_of(ended, state=done()), [])], NOW())
    of_other_tenant = some_run(thread_id=queued.thread_id, run_id=queued.id, tenant=Tenant("other"))
    before = await contents(pool)

    answers = [
        await claim(pool, run, owner) for run in (queued, ended, of_other_tenant, some_run())
    ]

    assert answers == [None] * 4
    assert await contents(pool) == before


# --- flush ----------------------------------------------------------------------------------------


async def test_a_flush_numbers_the_events_of_many_runs(pool: RawPool) -> None:
    owner = await worker(pool)
    first, second = await running(pool, owner), await running(pool, owner)

    one = await batched_append.flush(
        pool, [flush_of(first, "a", "b"), flush_of(second, "c")], NOW()
    )
    two = await batched_append.flush(pool, [flush_of(second, "d"), flush_of(first, "e")], NOW())

    assert (one, two) == ({0: 2, 1: 2}, {0: 3, 1: 4})
    assert await logged_seqs(pool, first) == [1, 2, 3, 4]
    assert await logged_seqs(pool, second) == [1, 2, 3]
    bodies = await pool.fetch(
        "SELECT body FROM events WHERE run_id = $1 AND seq > 1 ORDER BY seq", first.id
    )
    assert [row["body"] for row in bodies] == [entry.body for entry in deltas("a", "b", "e")]


async def test_event_numbers_have_no_gap_with_concurrent_writers(
    database: Database, pool: RawPool
) -> None:
    run = await running(pool)

    async def flush_until_written(text: str) -> None:
        while not await batched_append.flush(pool, [flush_of(run, text, text)], NOW()):
            assert await batched_append.still_owned(pool, [flush_of(run, text)]) == {0}

    async def emit_by_command(text: str) -> None:
        async with database.transaction() as connection:
            emitted = [(run.id, entry) for entry in deltas(text)]
            await event_log.append_events(connection, run.tenant, run.thread_id, emitted, NOW())

    async def save() -> None:
        assert await batched.checkpoint(pool, [(checkpoint_of(run), deltas("saved"))], NOW())

    async with asyncio.timeout(60):
        await asyncio.gather(
            *(flush_until_written("flushed") for _ in range(10)),
            *(emit_by_command("said") for _ in range(10)),
            *(save() for _ in range(10)),
        )

    assert await logged_seqs(pool, run) == [*range(1, 42)]
    assert await pool.fetchval("SELECT next_seq FROM event_heads") == 42


async def test_a_lost_run_is_distinguished_from_a_locked_one(pool: RawPool) -> None:
    lost = await taken_over(pool)
    locked, free = await running(pool), await running(pool)
    flushes = [flush_of(lost, "x"), flush_of(locked, "y"), flush_of(free, "z")]

    async with holding_head_of(pool, locked), asyncio.timeout(60):
        assert await batched_append.flush(pool, flushes, NOW()) == {2: 2}
        assert await batched_append.still_owned(pool, flushes) == {1, 2}

    assert await logged_seqs(pool, lost) == [1]
    assert await logged_seqs(pool, locked) == [1]
    assert await batched_append.flush(pool, flushes[:2], NOW()) == {1: 2}


async def test_a_committed_flush_is_found_by_its_timestamp(pool: RawPool) -> None:
    first, second = await running(pool), await running(pool)
    keys = [(run.tenant, run.thread_id, run.id) for run in (first, second)]
    at = NOW()
    earlier, later = at - timedelta(seconds=1), at + timedelta(seconds=1)
    await batched_append.flush(pool, [flush_of(first, "a")], earlier)
    await batched_append.flush(pool, [flush_of(second, "b", "c")], at)
    assert await batched_append.find_committed(pool, keys, at) == {1: 2}
    assert await batched_append.find_committed(pool, keys, later) == {}


# --- checkpoint -----------------------------------------------------------------------------------


async def test_a_checkpoint_writes_all_that_is_new(database: Database, pool: RawPool) -> None:
    run = await running(pool)
    saved = checkpoint_of(run, "Let me see", calls=[call_of(run, CallStatus.RUNNING)])

    assert await batched.checkpoint(pool, [(saved, entries_of(StepEnd()))], NOW()) == {
        0: CheckpointWritten(2)
    }

    async with database.reading() as connection:
        record = await runs.get(connection, run.tenant, run.id)
    log = await messages.history(pool, run.tenant, run.thread_id)
    assert record is not None
    assert isinstance(record.state, Running)
    assert (record.steps, record.usage, record.run_state) == (1, saved.usage, {"mood": "good"})
    assert [(entry.seq, entry.message) for entry in log][1:] == [(2, saved.messages[0])]
    assert await pool.fetchval("SELECT next_message_seq FROM threads") == 3
    call = await pool.fetchrow("SELECT call_id, status, attempt FROM tool_calls")
    assert call is not None
    assert tuple(call) == ("call-1", "running", 1)


async def test_settled_calls_are_forgotten(pool: RawPool) -> None:
    run = await running(pool)
    begun = checkpoint_of(run, calls=[call_of(run, CallStatus.RUNNING)])
    settled = checkpoint_of(run, calls=[call_of(run, CallStatus.SUCCEEDED)], calls_settled=True)
    await batched.checkpoint(pool, [(begun, [])], NOW())
    assert (await sizes(pool))["tool_calls"] == 1
    await batched.checkpoint(pool, [(settled, [])], NOW())
    assert "tool_calls" not in await sizes(pool)


async def test_an_end_frees_the_thread_and_refuses_later_events_of_the_run(
    database: Database, pool: RawPool
) -> None:
    run = await running(pool)
    ended = checkpoint_of(run, "Bye", state=done())
    finish = entries_of(RunFinish({}, "done", {"type": "natural_end"}, "succeeded"))

    assert await batched.checkpoint(pool, [(ended, finish)], NOW()) == {0: CheckpointWritten(2)}

    async with database.reading() as connection:
        record = await runs.get(connection, run.tenant, run.id)
    assert record is not None
    assert record.is_done
    assert await pool.fetchval("SELECT owner FROM runs") is None
    assert await pool.fetchval("SELECT open_run_id FROM threads") is None
    head = await pool.fetchrow("SELECT next_seq, run_id, attempt FROM event_heads")
    assert head is not None
    assert tuple(head) == (3, None, None)
    assert await batched_append.flush(pool, [flush_of(run, "still here")], NOW()) == {}
    assert await batched_append.still_owned(pool, [flush_of(run, "still here")]) == set()


async def test_only_the_lost_run_of_a_group_is_not_written(pool: RawPool) -> None:
    lost = await taken_over(pool)
    ended = await running(pool)
    await batched.checkpoint(pool, [(checkpoint_of(ended, state=done()), [])], NOW())
    first, second = await running(pool), await running(pool)
    group = [checkpoint_of(run, "Hi") for run in (first, lost, ended, second)]

    written = await batched.checkpoint(pool, [(one, deltas("Hi")) for one in group], NOW())

    assert written == {0: CheckpointWritten(2), 3: CheckpointWritten(2)}
    answered = await pool.fetch("SELECT thread_id FROM messages WHERE role = 'assistant'")
    assert {row["thread_id"] for row in answered} == {first.thread_id, second.thread_id}
    assert await logged_seqs(pool, lost) == [1]
    assert await logged_seqs(pool, ended) == [1]


async def test_a_checkpoint_does_not_append_at_an_occupied_position(pool: RawPool) -> None:
    run = await running(pool)
    assert await batched.checkpoint(pool, [(checkpoint_of(run, "Hi"), [])], NOW()) == {
        0: CheckpointWritten(2)
    }
    before = await contents(pool)
    assert await batched.checkpoint(pool, [(checkpoint_of(run, "Hi again"), [])], NOW()) == {}
    assert await contents(pool) == before


async def test_an_end_that_admits_another_run_is_left_to_the_single_checkpoint(
    pool: RawPool,
) -> None:
    run = await running(pool)
    await pool.execute("UPDATE threads SET queue_length = 1")
    before = await contents(pool)
    ended = checkpoint_of(run, "Bye", state=done())
    assert await batched.checkpoint(pool, [(ended, deltas("Bye"))], NOW()) == {}
    assert await contents(pool) == before


async def test_characters_that_postgres_cannot_store_are_replaced(pool: RawPool) -> None:
    run = await running(pool)
    odd = checkpoint_of(run, "nul \0 and half a pair \ud800")
    assert await batched.checkpoint(pool, [(odd, deltas("nul \0"))], NOW()) == {
        0: CheckpointWritten(2)
    }
    assert (await sizes(pool))["messages"] == 2


async def test_a_lost_worker_writes_nothing(database: Database, pool: RawPool) -> None:
    run = await taken_over(pool)
    ticket = ticket_of(run)
    late = [
        checkpoint_of(run, "Hi", calls=[call_of(run, CallStatus.RUNNING)], emitted=[StepEnd()]),
        checkpoint_of(run, calls_settled=True, applied=[ticket.id]),
        checkpoint_of(run, "Bye", state=done()),
        checkpoint_of(run, "May I?", state=suspended(), opened=[ticket]),
    ]
    before = await contents(pool)

    assert await batched_append.flush(pool, [flush_of(run, "still here")], NOW()) == {}
    for checkpoint in late:
        assert await batched.checkpoint(pool, [(checkpoint, deltas("still here"))], NOW()) == {}
        async with database.transaction() as connection:
            outcome = await single.save(connection, checkpoint, at=NOW())
        assert outcome == OwnershipMismatch()
    async with database.transaction() as connection:
        assert not await runs.release(connection, run.tenant, run.id, 1, failed=True)

    assert await contents(pool) == before
