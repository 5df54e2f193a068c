"""The writer: events of runs are published once, in order and only by their owner, despite failures."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from app.clock import SystemClock, sleep
from app.domain.checkpoints import CheckpointSaved, DecidedConcurrently
from app.domain.errors import OwnershipLost
from app.domain.events.step_events import ReasoningDelta, StepEnd, StepStart, TextDelta
from app.domain.events.tool_call_events import ToolCallDelta
from app.domain.runs.runs import Done, NewRun, Running, Waiting
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.events import group_commit
from app.events.fanout.hub import Subscription
from app.events.group_commit import STEP_START_DELAY_SECONDS
from app.events.sse_encoding import Frame
from app.storage.postgres.connect import DatabaseOptions, RawConnection
from app.storage.postgres.database import Database, RawPool
from app.storage.runs import runs
from app.storage.threads import messages
from app.storage.tickets import decisions
from tests.support.emitters import TIMEOUT_SECONDS, writing
from tests.support.forwarders import Forwarder, forwarding
from tests.support.open_tickets import open_tickets
from tests.support.rows import contents
from tests.support.stored_runs import (
    checkpoint_of,
    done,
    logged_seqs,
    running,
    suspended,
    taken_over,
    ticket_of,
)

pytestmark = pytest.mark.anyio

SOON = 0.02
EXTRA_SECONDS = 1.0
"""What a busy machine may need for a commit or two."""


async def collect(subscription: Subscription, count: int) -> list[Frame]:
    received: list[Frame] = []
    while len(received) < count:
        received += await subscription.next(TIMEOUT_SECONDS) or []
    return received


def shown(frames: Sequence[Frame]) -> list[tuple[int, str, str]]:
    """Number, type and delta of each frame."""
    bodies = [json.loads(frame.json) for frame in frames]
    return [(body["seq"], body["event_type"], body.get("delta", "")) for body in bodies]


async def logged_deltas(connection: "RawPool | RawConnection", run: NewRun) -> list[str]:
    rows = await connection.fetch(
        "SELECT body FROM events WHERE run_id = $1 AND event_type = 'text_delta' ORDER BY seq",
        run.id,
    )
    return [json.loads(row["body"])["delta"] for row in rows]


@asynccontextmanager
async def separate_connection(url: str) -> AsyncIterator[RawConnection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def kill_others(connection: RawConnection) -> None:
    """Terminates every connection to this database except its own."""
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


# --- emitting -------------------------------------------------------------------------------------


async def test_adjacent_deltas_become_one_event(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        journal, _ = emitters.of(run)
        with_subscription = emitters.listen(run)
        for event, step in (
            (TextDelta("a"), 1),
            (TextDelta("b"), 1),
            (ReasoningDelta("c"), 1),
            (TextDelta("d"), 1),
            (TextDelta("e"), 2),
            (ToolCallDelta("1", "x"), 2),
            (ToolCallDelta("2", "y"), 2),
            (TextDelta("f"), 2),
            (TextDelta("g"), 2),
        ):
            journal.emit(event, step)
        received = shown(await collect(with_subscription, 7))

    assert received == [
        (2, "text_delta", "ab"),
        (3, "reasoning_delta", "c"),
        (4, "text_delta", "d"),
        (5, "text_delta", "e"),
        (6, "tool_call_delta", ""),
        (7, "tool_call_delta", ""),
        (8, "text_delta", "fg"),
    ]
    assert await logged_deltas(database.pool, run) == ["ab", "d", "e", "fg"]


async def test_the_start_of_a_step_is_published_soon_without_further_events(
    database: Database,
) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        journal, _ = emitters.of(run)
        subscription = emitters.listen(run)
        async with asyncio.timeout(STEP_START_DELAY_SECONDS + EXTRA_SECONDS):
            for step in (1, 2):
                journal.emit(StepStart("message"), step)
                assert shown(await collect(subscription, 1)) == [(1 + step, "step_start", "")]


async def test_the_start_of_a_step_shares_the_commit_of_its_first_events(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "STEP_START_DELAY_SECONDS", TIMEOUT_SECONDS)
    run = await running(database.pool)
    async with writing(database) as emitters:
        journal, _ = emitters.of(run)
        subscription = emitters.listen(run)
        journal.emit(StepStart("message"), 1)
        await sleep(SOON)
        assert subscription.is_idle
        journal.emit(TextDelta("a"), 1)
        shared_commit = await subscription.next(TIMEOUT_SECONDS)
        assert shown(shared_commit or []) == [(2, "step_start", ""), (3, "text_delta", "a")]


async def test_events_of_many_runs_are_published_in_the_order_of_each(database: Database) -> None:
    runs = [await running(database.pool) for _ in range(8)]
    words = [f"{number} " for number in range(40)]
    async with writing(database) as emitters:

        async def emit_words(run: NewRun) -> str:
            journal, _ = emitters.of(run)
            subscription = emitters.listen(run)
            received: list[Frame] = []
            for place, word in enumerate(words):
                journal.emit(TextDelta(word), 1)
                if place % 5 == 4:
                    received += await collect(subscription, 1)
            emitted = "".join(delta for _, _, delta in shown(received))
            while len(emitted) < len("".join(words)):
                emitted += "".join(delta for _, _, delta in shown(await collect(subscription, 1)))
            return emitted

        texts = await asyncio.gather(*map(emit_words, runs))

    assert texts == ["".join(words)] * len(runs)
    for run in runs:
        assert "".join(await logged_deltas(database.pool, run)) == "".join(words)
        seqs = await logged_seqs(database.pool, run)
        assert seqs == [*range(1, len(seqs) + 1)]


async def test_a_locked_thread_does_not_delay_the_events_of_others(
    database: Database, database_url: str
) -> None:
    blocked_run, other_run = await running(database.pool), await running(database.pool)
    async with separate_connection(database_url) as command, writing(database) as emitters:
        subscription = emitters.listen(blocked_run), emitters.listen(other_run)
        async with command.transaction():
            await command.execute(
                "SELECT FROM event_heads WHERE thread_id = $1 FOR NO KEY UPDATE",
                blocked_run.thread_id,
            )
            emitting_run, _ = emitters.of(blocked_run)
            emitting_run.emit(TextDelta("first "), 1)
            emitters.of(other_run)[0].emit(TextDelta("free"), 1)
            assert shown(await collect(subscription[1], 1)) == [(2, "text_delta", "free")]
            assert subscription[0].is_idle
        emitting_run.emit(TextDelta("second"), 2)
        received = shown(await collect(subscription[0], 2))
    assert received == [(2, "text_delta", "first "), (3, "text_delta", "second")]


async def test_an_emitter_that_lost_its_run_is_informed_and_publishes_nothing(
    database: Database,
) -> None:
    run = await taken_over(database.pool)
    before = await contents(database.pool)
    async with writing(database) as emitters:
        journal, lost = emitters.of(run)
        journal.emit(TextDelta("still here"), 1)
        await journal.lost.wait()
        with pytest.raises(OwnershipLost):
            await journal.wait_for_capacity()
        with pytest.raises(OwnershipLost):
            await journal.commit(checkpoint_of(run, "Hi"))
    assert lost == ["lost"]
    assert await contents(database.pool) == before


async def test_an_event_that_cannot_be_stored_stops_only_its_run(database: Database) -> None:
    broken, sound = await running(database.pool), await running(database.pool)
    async with writing(database) as emitters:
        journal, lost = emitters.of(broken)
        subscription = emitters.listen(sound)
        journal.emit(TextDelta("x"), 2**40)
        emitters.of(sound)[0].emit(TextDelta("y"), 1)
        assert shown(await collect(subscription, 1)) == [(2, "text_delta", "y")]
        await journal.lost.wait()
    assert lost == ["lost"]


# --- saving ---------------------------------------------------------------------------------------


async def test_a_checkpoint_saves_the_events_before_it(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        journal, _ = emitters.of(run)
        subscription = emitters.listen(run)
        journal.emit(TextDelta("Hi"), 1)
        assert (
            await journal.commit(checkpoint_of(run, "Hi", emitted=[StepEnd()])) == CheckpointSaved()
        )
        received = await subscription.next(TIMEOUT_SECONDS)
        journal.emit(TextDelta("and"), 2)
        assert shown(await collect(subscription, 1)) == [(4, "text_delta", "and")]
    assert received is not None
    assert shown(received) == [(2, "text_delta", "Hi"), (3, "step_end", "")]
    one_commit = "SELECT count(DISTINCT ts) FROM events WHERE seq IN (2, 3)"
    assert await database.pool.fetchval(one_commit) == 1


async def test_a_checkpoint_that_waits_for_a_lock_delays_no_other_runs_events(
    database: Database, database_url: str
) -> None:
    blocked_run, other_run = await running(database.pool), await running(database.pool)
    async with separate_connection(database_url) as command, writing(database) as emitters:
        subscription = emitters.listen(other_run)
        async with command.transaction():
            await command.execute(
                "SELECT FROM threads WHERE id = $1 FOR NO KEY UPDATE", blocked_run.thread_id
            )
            commit = emitters.of(blocked_run)[0].commit(checkpoint_of(blocked_run, "Hi"))
            saving = asyncio.gather(commit)
            await until_a_lock_is_awaited(command)
            emitters.of(other_run)[0].emit(TextDelta("free"), 1)
            assert shown(await collect(subscription, 1)) == [(2, "text_delta", "free")]
            assert not saving.done()
        [answer] = await saving
        assert answer == CheckpointSaved()


async def test_each_of_many_checkpoints_gets_its_own_result(database: Database) -> None:
    ours = [await running(database.pool) for _ in range(6)]
    lost = await taken_over(database.pool)
    async with writing(database) as emitters:
        answers = await asyncio.gather(
            *(
                emitters.of(run)[0].commit(checkpoint_of(run, "Hi", emitted=[StepEnd()]))
                for run in ours
            ),
            emitters.of(lost)[0].commit(checkpoint_of(lost, "Hi", emitted=[StepEnd()])),
            return_exceptions=True,
        )
    assert answers[:-1] == [CheckpointSaved()] * len(ours)
    assert isinstance(answers[-1], OwnershipLost)
    assert [await logged_seqs(database.pool, run) for run in ours] == [[1, 2]] * len(ours)
    assert await logged_seqs(database.pool, lost) == [1]


async def test_a_suspended_run_is_saved_with_its_tickets_and_emits_nothing_more(
    database: Database,
) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        journal, lost = emitters.of(run)
        subscription = emitters.listen(run)
        journal.emit(TextDelta("May I?"), 1)
        waits = checkpoint_of(
            run, "May I?", state=suspended(), opened=[ticket_of(run)], emitted=[StepEnd()]
        )
        assert await journal.commit(waits) == CheckpointSaved()
        assert shown(await collect(subscription, 2)) == [
            (2, "text_delta", "May I?"),
            (3, "step_end", ""),
        ]
        journal.emit(TextDelta("too late"), 2)
        await journal.lost.wait()
    assert lost == ["lost"]
    assert await logged_seqs(database.pool, run) == [1, 2, 3]


async def answered(database: Database) -> NewRun:
    """An executing run with a decision that it hasn't read."""
    run, clock = await running(database.pool), SystemClock()
    ticket = ticket_of(run)
    decision = Decision(
        decision_id="decision-1",
        answer=DecisionAnswer(action=Action.APPROVE),
        subject="bob",
        at=clock.now(),
    )
    async with database.transaction() as connection:
        assert await runs.lock(connection, run.tenant, run.id) is not None
        await open_tickets(connection, run.tenant, [ticket])
        await decisions.decide(connection, run.tenant, ticket.id, decision)
    return run


async def test_a_run_with_an_unapplied_decision_does_not_suspend(database: Database) -> None:
    run = await answered(database)
    async with writing(database) as emitters:
        journal, _ = emitters.of(run)
        subscription = emitters.listen(run)
        journal.emit(TextDelta("May I?"), 1)
        waits = checkpoint_of(run, "May I?", state=suspended(), emitted=[StepEnd()])
        assert await journal.commit(waits) == DecidedConcurrently()
        # Earlier events are published, those of the refused checkpoint are not.
        journal.emit(TextDelta("Thanks"), 2)
        received = shown(await collect(subscription, 2))
    assert received == [(2, "text_delta", "May I?"), (3, "text_delta", "Thanks")]


async def test_a_writer_that_stops_leaves_no_caller_waiting(
    database: Database, database_url: str
) -> None:
    run = await running(database.pool)
    async with separate_connection(database_url) as command, writing(database) as emitters:
        async with command.transaction():
            await command.execute(
                "SELECT FROM threads WHERE id = $1 FOR NO KEY UPDATE", run.thread_id
            )
            commit = emitters.of(run)[0].commit(checkpoint_of(run, "Hi"))
            saving = asyncio.gather(commit, return_exceptions=True)
            await until_a_lock_is_awaited(command)
            emitters.writing.cancel()
            [answer] = await saving
    assert isinstance(answer, OwnershipLost)


async def until_a_lock_is_awaited(connection: RawConnection) -> None:
    while not await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ):
        pass


# --- when connections die -------------------------------------------------------------------------


async def test_every_event_is_logged_once_though_connections_die(
    database: Database, database_url: str
) -> None:
    runs = [await running(database.pool) for _ in range(10)]
    words = [f"word {number}" for number in range(60)]
    async with separate_connection(database_url) as other_connection, writing(database) as emitters:

        async def emit_words(run: NewRun) -> None:
            journal, _ = emitters.of(run)
            subscription = emitters.listen(run)
            received = 0
            for place, word in enumerate(words, 1):
                # A new step each time, so that no deltas are merged.
                journal.emit(TextDelta(word), place)
                if place % 20 == 10:
                    saved = checkpoint_of(run, emitted=[StepEnd()])
                    assert await journal.commit(saved) == CheckpointSaved()
                elif place % 4 == 0:
                    received += len(await collect(subscription, 1))
                if run is runs[0] and place % 15 == 0:
                    journal.emit(TextDelta("killing"), 0)
                    await kill_others(other_connection)
            emitted = len(words) + 3 + (4 if run is runs[0] else 0)
            await collect(subscription, emitted - received)

        await asyncio.gather(*map(emit_words, runs))

        # Connections of the pool may be dead: the last kill came shortly before.
        for run in runs:
            deltas = await logged_deltas(other_connection, run)
            assert [delta for delta in deltas if delta != "killing"] == words
            seqs = await logged_seqs(other_connection, run)
            assert seqs == [*range(1, len(seqs) + 1)]


async def test_an_end_is_saved_once_though_its_connection_dies(
    database: Database, database_url: str
) -> None:
    run = await running(database.pool)
    async with separate_connection(database_url) as other_connection, writing(database) as emitters:
        journal, _ = emitters.of(run)
        async with asyncio.TaskGroup() as tasks:
            async with other_connection.transaction():
                await other_connection.execute(
                    "SELECT FROM threads WHERE id = $1 FOR NO KEY UPDATE", run.thread_id
                )
                ending = tasks.create_task(
                    journal.commit(checkpoint_of(run, "Bye", state=done(), emitted=[StepEnd()]))
                )
                await until_a_lock_is_awaited(other_connection)
                await kill_others(other_connection)
        assert ending.result() == CheckpointSaved()
        assert await logged_seqs(other_connection, run) == [1, 2]
        assert await other_connection.fetchval("SELECT status FROM runs") == "done"


# --- commits whose reply is lost ------------------------------------------------------------------


@asynccontextmanager
async def losing_replies(url: str) -> AsyncIterator[tuple[Forwarder, Database]]:
    async with forwarding(url) as forwarder:
        database = await Database.open(forwarder.url, DatabaseOptions(pool_size=2, hot_pool_size=2))
        try:
            yield forwarder, database
        finally:
            await database.close()


async def test_a_flush_whose_reply_is_lost_is_logged_and_published_once(database_url: str) -> None:
    async with losing_replies(database_url) as (forwarder, database):
        run = await running(database.pool)
        forwarder.lose_reply_to(b"lost reply")
        async with writing(database) as emitters:
            subscription = emitters.listen(run)
            journal, _ = emitters.of(run)
            journal.emit(TextDelta("lost reply"), 1)
            received = await collect(subscription, 1)
            journal.emit(TextDelta("and on"), 2)
            received += await collect(subscription, 1)
        assert forwarder.cuts == 1
        assert shown(received) == [(2, "text_delta", "lost reply"), (3, "text_delta", "and on")]
        assert await logged_deltas(database.pool, run) == ["lost reply", "and on"]


@pytest.mark.parametrize("emitted", [[StepEnd()], []], ids=["with events", "without events"])
@pytest.mark.parametrize("ending", ["running", "waiting", "done"])
async def test_a_checkpoint_whose_reply_is_lost_is_saved_once(
    database_url: str, ending: str, emitted: list[StepEnd]
) -> None:
    async with losing_replies(database_url) as (forwarder, database):
        run = await running(database.pool)
        states: dict[str, Running | Waiting | Done] = {
            "running": Running(None),
            "waiting": suspended(),
            "done": done(),
        }
        checkpoint = checkpoint_of(
            run,
            "lost reply",
            state=states[ending],
            opened=[ticket_of(run)] if ending == "waiting" else [],
            emitted=emitted,
        )
        forwarder.lose_reply_to(b"lost reply")
        async with writing(database) as emitters:
            journal, lost = emitters.of(run)
            subscription = emitters.listen(run)
            # The lost reply said whether the run is paused, so the next step border queries it.
            assert await journal.commit(checkpoint) == CheckpointSaved(is_paused=True)
            if emitted:
                assert shown(await collect(subscription, 1)) == [(2, "step_end", "")]
        assert forwarder.cuts == 1
        assert lost == []
        assert await database.pool.fetchval("SELECT status FROM runs") == ending
        log = await messages.history(database.pool, run.tenant, run.thread_id)
        assert [entry.message.text for entry in log] == ["Hello", "lost reply"]
        assert await logged_seqs(database.pool, run) == [*range(1, 2 + len(emitted))]


async def test_a_checkpoint_without_events_that_loses_its_connection_is_published_once(
    database_url: str,
) -> None:
    async with losing_replies(database_url) as (forwarder, database):
        run = await answered(database)
        async with writing(database) as emitters:
            journal, _ = emitters.of(run)
            subscription = emitters.listen(run)
            journal.flush_blocked = True
            journal.emit(TextDelta("May I?"), 1)
            forwarder.lose(b"COMMIT")
            waits = checkpoint_of(run, "May I?", state=suspended(), emitted=[StepEnd()])
            assert await journal.commit(waits) == DecidedConcurrently()
            journal.emit(TextDelta("Thanks"), 2)
            received = shown(await collect(subscription, 2))
        assert forwarder.cuts == 1
        assert received == [(2, "text_delta", "May I?"), (3, "text_delta", "Thanks")]
        assert await logged_deltas(database.pool, run) == ["May I?", "Thanks"]
