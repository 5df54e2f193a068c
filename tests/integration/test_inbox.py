"""A run's inbox: its inputs enter the log once and in order, and no run ends with unread ones."""

import asyncio

import pytest

from app.clock import SystemClock, new_id
from app.domain.checkpoints import CheckpointSaved, InputOrTasksPending
from app.domain.events.input_events import InputQueued
from app.domain.ids import InputId, MessageId
from app.domain.runs.runs import NewRun, Waiting, WaitingReason
from app.domain.threads.messages import Message, Role, Text
from app.llm.scripted.model import Gate, in_order, turn
from app.storage.checkpoints import batched, single
from app.storage.checkpoints.batched import CheckpointWritten
from app.storage.postgres.database import Database, RawPool
from app.storage.runs import claims, runs
from app.storage.threads import inputs, messages
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, open_replica, texts_of
from tests.support.stored_runs import (
    TIMEOUT,
    checkpoint_of,
    die,
    done,
    message,
    running,
    worker,
)

pytestmark = pytest.mark.anyio

NOW = SystemClock().now


async def send_message(run: Run, *texts: str) -> None:
    """Sends a message to an executing run, as the command does."""
    async with run.replica.outgoing.transaction() as transaction:
        connection, record = transaction.connection, run.record
        assert await runs.lock(connection, record.tenant, run.id) is not None
        for text in texts:
            input_id, message_id = InputId(new_id()), MessageId(new_id())
            emitted = Message(id=message_id, role=Role.USER, content=(Text(text),))
            await inputs.queue(
                connection, record.tenant, run.thread_id, run.id, [(input_id, emitted)]
            )
            transaction.emit(
                record.tenant, run.thread_id, run.id, InputQueued(input_id, message_id)
            )


async def reached(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 15)


async def test_messages_enter_the_log_at_the_next_step_border_in_order(database_url: str) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("I see."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await probe.was_reached()
        await send_message(run, "one", "two")
        await send_message(run, "three")
        probe.open.set()
        await run.finished()
        log = texts_of(await run.log())
        record = await run.now()
    assert log[2:] == [
        ("tool", "probe did it"),
        ("user", "one"),
        ("user", "two"),
        ("user", "three"),
        ("assistant", "I see."),
    ]
    assert [message.text for message in script.requests[1].messages][-3:] == ["one", "two", "three"]
    assert record.input is not None
    assert len(record.input.trigger_message_ids) == 1, "the input of the run is its first message"
    assert await broken_invariants(database_url) == {}


async def test_a_message_during_the_last_answer_gets_an_answer(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn("Good", gate, "bye"), turn("Oh, one more."))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await reached(gate.reached)
        await send_message(run, "Wait!")
        gate.open.set()
        await run.finished()
        log = texts_of(await run.log())
        record = await run.now()
    assert log[1:] == [("assistant", "Goodbye"), ("user", "Wait!"), ("assistant", "Oh, one more.")]
    assert record.steps == 2
    assert await broken_invariants(database_url) == {}


async def test_messages_for_a_lost_worker_are_read_by_the_next_one(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate))) as first:
        run = await first.start()
        await reached(gate.reached)
        await send_message(run, "one", "two")
        await first.kill()
    script = in_order(turn("All right."))
    async with open_replica(database_url, an_agent(), script) as second:
        run = second.same(run)
        await run.finished()
        log = texts_of(await run.log())
    assert log == [("user", "go"), ("user", "one"), ("user", "two"), ("assistant", "All right.")]
    assert await broken_invariants(database_url) == {}


async def test_messages_that_a_cancelled_run_never_read_are_retracted(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate))) as replica:
        run = await replica.start()
        await reached(gate.reached)
        await send_message(run, "one")
        await run.cancel()
        await run.finished()
        rows = await replica.database.pool.fetch("SELECT status FROM inputs")
    assert [row["status"] for row in rows] == ["retracted"]
    assert await broken_invariants(database_url) == {}


# --- statements -----------------------------------------------------------------------------------


@pytest.fixture
def pool(database: Database) -> RawPool:
    return database.pool


async def queued(database: Database, run: NewRun, *texts: str) -> None:
    async with database.transaction() as connection:
        for text in texts:
            one = (InputId(new_id()), message(text))
            await inputs.queue(connection, run.tenant, run.thread_id, run.id, [one])


async def test_a_checkpoint_returns_the_count_of_unread_inputs_and_an_end_is_refused(
    database: Database, pool: RawPool
) -> None:
    run = await running(pool)
    await queued(database, run, "one")
    step = checkpoint_of(run, "Hi")
    assert await batched.checkpoint(pool, [(step, [])], NOW()) == {
        0: CheckpointWritten(2, unread_inputs=1)
    }
    end = checkpoint_of(run, "Bye", next_seq=3, state=done())
    assert await batched.checkpoint(pool, [(end, [])], NOW()) == {}
    async with database.transaction() as connection:
        assert await single.save(connection, end, at=NOW()) == InputOrTasksPending(1, 0)


async def test_waiting_for_tasks_needs_an_open_task_and_no_unread_input(
    database: Database, pool: RawPool
) -> None:
    run = await running(pool)
    waiting_for_tasks = Waiting(WaitingReason.BACKGROUND_TASKS, "awaiting_tasks")
    final_checkpoint = checkpoint_of(run, "Bye", state=waiting_for_tasks)

    async def saved() -> object:
        async with database.transaction() as connection:
            return await single.save(connection, final_checkpoint, at=NOW())

    assert await saved() == InputOrTasksPending(0, 0)
    await pool.execute("UPDATE runs SET open_tasks = 1")
    await queued(database, run, "one")
    assert await saved() == InputOrTasksPending(1, 1)
    await pool.execute("UPDATE runs SET unread_inputs = 0")
    assert await saved() == CheckpointSaved(0, 1)


async def test_inputs_of_a_commit_whose_reply_was_lost_are_not_entered_again(
    database: Database, pool: RawPool
) -> None:
    run = await running(pool)
    await queued(database, run, "one", "two")
    delivered: list[list[int]] = []

    async def entered() -> list[str]:
        async with database.transaction() as connection:
            new = await inputs.enter_log(connection, run.tenant, run.thread_id, run.id, 1, 2, NOW())
        assert new is not None
        delivered.append([at.seq for _, at in new.delivered])
        return [f"{entry.seq} {entry.message.text}" for entry in new.log]

    assert await entered() == ["2 one", "3 two"]
    assert await entered() == ["2 one", "3 two"]
    await queued(database, run, "three")
    assert await entered() == ["2 one", "3 two", "4 three"]
    assert delivered == [[2, 3], [], [4]]
    assert len(await messages.history(pool, run.tenant, run.thread_id)) == 4


async def test_a_worker_that_lost_its_run_enters_no_input(
    database: Database, pool: RawPool
) -> None:
    lost = await worker(pool)
    run = await running(pool, lost)
    await queued(database, run, "one")
    await die(pool, lost)
    successor = await worker(pool)
    assert await claims.claim(pool, run.tenant, run.thread_id, run.id, successor, TIMEOUT)
    async with database.transaction() as connection:
        late = await inputs.enter_log(connection, run.tenant, run.thread_id, run.id, 1, 2, NOW())
    assert late is None
    assert await pool.fetchval("SELECT unread_inputs FROM runs") == 0
