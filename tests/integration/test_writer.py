"""The writer: what runs say is heard once, in order, from its owner alone, whatever breaks meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from app.clock import SystemClock, sleep
from app.domain.checkpoints import CheckpointSaved, DecidedConcurrently
from app.domain.errors import OwnershipLost
from app.domain.events.run_events import (
    ReasoningDelta,
    StepEnd,
    StepStart,
    TextDelta,
    ToolCallDelta,
)
from app.domain.runs.runs import Done, NewRun, Running, Waiting
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.events import group_commit
from app.events.fanout.hub import Subscription
from app.events.group_commit import STEP_START_DELAY_SECONDS
from app.events.sse_encoding import Frame
from app.storage.postgres.connect import DatabaseOptions, RawConnection
from app.storage.postgres.database import Database
from app.storage.runs import runs
from app.storage.threads import messages
from app.storage.tickets import decisions, tickets
from tests.support.forwarders import Forwarder, forwarding
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
from tests.support.voices import PATIENCE, writing

pytestmark = pytest.mark.anyio

SOON = 0.02
SLACK = 1.0
"""What a busy machine may need for a commit or two."""


async def hear(subscription: Subscription, count: int) -> list[Frame]:
    heard: list[Frame] = []
    while len(heard) < count:
        heard += await subscription.next(PATIENCE) or []
    return heard


def shown(frames: Sequence[Frame]) -> list[tuple[int, str, str]]:
    """Number, type and delta of each frame."""
    bodies = [json.loads(frame.json) for frame in frames]
    return [(body["seq"], body["event_type"], body.get("delta", "")) for body in bodies]


async def logged_deltas(database: Database, run: NewRun) -> list[str]:
    rows = await database.pool.fetch(
        "SELECT body FROM events WHERE run_id = $1 AND event_type = 'text_delta' ORDER BY seq",
        run.id,
    )
    return [json.loads(row["body"])["delta"] for row in rows]


@asynccontextmanager
async def outsider(url: str) -> AsyncIterator[RawConnection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def kill_others(connection: RawConnection) -> None:
    """Every connection to this database but one's own dies at once."""
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


# --- saying ---------------------------------------------------------------------------------------


async def test_adjacent_deltas_become_one_event(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        journal, _ = voices.of(run)
        with_ears = voices.listen(run)
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
        heard = shown(await hear(with_ears, 7))

    assert heard == [
        (2, "text_delta", "ab"),
        (3, "reasoning_delta", "c"),
        (4, "text_delta", "d"),
        (5, "text_delta", "e"),
        (6, "tool_call_delta", ""),
        (7, "tool_call_delta", ""),
        (8, "text_delta", "fg"),
    ]
    assert await logged_deltas(database, run) == ["ab", "d", "e", "fg"]


async def test_a_step_that_begins_is_heard_soon_though_nothing_is_said_in_it(
    database: Database,
) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        journal, _ = voices.of(run)
        ears = voices.listen(run)
        async with asyncio.timeout(STEP_START_DELAY_SECONDS + SLACK):
            for step in (1, 2):
                journal.emit(StepStart("message"), step)
                assert shown(await hear(ears, 1)) == [(1 + step, "step_start", "")]


async def test_a_step_that_begins_shares_the_commit_of_what_is_said_in_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "STEP_START_DELAY_SECONDS", PATIENCE)
    run = await running(database.pool)
    async with writing(database) as voices:
        journal, _ = voices.of(run)
        ears = voices.listen(run)
        journal.emit(StepStart("message"), 1)
        await sleep(SOON)
        assert ears.is_idle
        journal.emit(TextDelta("a"), 1)
        together = await ears.next(PATIENCE)
        assert shown(together or []) == [(2, "step_start", ""), (3, "text_delta", "a")]


async def test_many_voices_are_heard_each_in_its_order(database: Database) -> None:
    speakers = [await running(database.pool) for _ in range(8)]
    words = [f"{number} " for number in range(40)]
    async with writing(database) as voices:

        async def talk(run: NewRun) -> str:
            journal, _ = voices.of(run)
            ears = voices.listen(run)
            heard: list[Frame] = []
            for place, word in enumerate(words):
                journal.emit(TextDelta(word), 1)
                if place % 5 == 4:
                    heard += await hear(ears, 1)
            said = "".join(delta for _, _, delta in shown(heard))
            while len(said) < len("".join(words)):
                said += "".join(delta for _, _, delta in shown(await hear(ears, 1)))
            return said

        told = await asyncio.gather(*map(talk, speakers))

    assert told == ["".join(words)] * len(speakers)
    for run in speakers:
        assert "".join(await logged_deltas(database, run)) == "".join(words)
        seqs = await logged_seqs(database.pool, run)
        assert seqs == [*range(1, len(seqs) + 1)]


async def test_one_busy_thread_does_not_silence_the_others(
    database: Database, database_url: str
) -> None:
    busy, free = await running(database.pool), await running(database.pool)
    async with outsider(database_url) as command, writing(database) as voices:
        ears = voices.listen(busy), voices.listen(free)
        async with command.transaction():
            await command.execute(
                "SELECT FROM event_heads WHERE thread_id = $1 FOR NO KEY UPDATE", busy.thread_id
            )
            speaker, _ = voices.of(busy)
            speaker.emit(TextDelta("first "), 1)
            voices.of(free)[0].emit(TextDelta("free"), 1)
            assert shown(await hear(ears[1], 1)) == [(2, "text_delta", "free")]
            assert ears[0].is_idle
        speaker.emit(TextDelta("second"), 2)
        heard = shown(await hear(ears[0], 2))
    assert heard == [(2, "text_delta", "first "), (3, "text_delta", "second")]


async def test_a_lost_voice_is_told_and_not_heard(database: Database) -> None:
    run = await taken_over(database.pool)
    before = await contents(database.pool)
    async with writing(database) as voices:
        journal, lost = voices.of(run)
        journal.emit(TextDelta("still here"), 1)
        await journal.lost.wait()
        with pytest.raises(OwnershipLost):
            await journal.wait_for_capacity()
        with pytest.raises(OwnershipLost):
            await journal.commit(checkpoint_of(run, "Hi"))
    assert lost == ["lost"]
    assert await contents(database.pool) == before


async def test_an_event_that_cannot_be_stored_silences_only_its_run(database: Database) -> None:
    broken, sound = await running(database.pool), await running(database.pool)
    async with writing(database) as voices:
        journal, lost = voices.of(broken)
        ears = voices.listen(sound)
        journal.emit(TextDelta("x"), 2**40)
        voices.of(sound)[0].emit(TextDelta("y"), 1)
        assert shown(await hear(ears, 1)) == [(2, "text_delta", "y")]
        await journal.lost.wait()
    assert lost == ["lost"]


# --- saving ---------------------------------------------------------------------------------------


async def test_a_checkpoint_takes_along_what_was_said(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        journal, _ = voices.of(run)
        ears = voices.listen(run)
        journal.emit(TextDelta("Hi"), 1)
        assert await journal.commit(checkpoint_of(run, "Hi", said=[StepEnd()])) == CheckpointSaved()
        heard = await ears.next(PATIENCE)
        journal.emit(TextDelta("and"), 2)
        assert shown(await hear(ears, 1)) == [(4, "text_delta", "and")]
    assert heard is not None
    assert shown(heard) == [(2, "text_delta", "Hi"), (3, "step_end", "")]
    one_commit = "SELECT count(DISTINCT ts) FROM events WHERE seq IN (2, 3)"
    assert await database.pool.fetchval(one_commit) == 1


async def test_a_checkpoint_that_waits_for_a_lock_stops_nobodys_tokens(
    database: Database, database_url: str
) -> None:
    busy, free = await running(database.pool), await running(database.pool)
    async with outsider(database_url) as command, writing(database) as voices:
        ears = voices.listen(free)
        async with command.transaction():
            await command.execute(
                "SELECT FROM threads WHERE id = $1 FOR NO KEY UPDATE", busy.thread_id
            )
            commit = voices.of(busy)[0].commit(checkpoint_of(busy, "Hi"))
            saving = asyncio.gather(commit)
            await until_somebody_waits(command)
            voices.of(free)[0].emit(TextDelta("free"), 1)
            assert shown(await hear(ears, 1)) == [(2, "text_delta", "free")]
            assert not saving.done()
        [answer] = await saving
        assert answer == CheckpointSaved()


async def test_checkpoints_of_many_runs_are_each_answered(database: Database) -> None:
    ours = [await running(database.pool) for _ in range(6)]
    lost = await taken_over(database.pool)
    async with writing(database) as voices:
        answers = await asyncio.gather(
            *(voices.of(run)[0].commit(checkpoint_of(run, "Hi", said=[StepEnd()])) for run in ours),
            voices.of(lost)[0].commit(checkpoint_of(lost, "Hi", said=[StepEnd()])),
            return_exceptions=True,
        )
    assert answers[:-1] == [CheckpointSaved()] * len(ours)
    assert isinstance(answers[-1], OwnershipLost)
    assert [await logged_seqs(database.pool, run) for run in ours] == [[1, 2]] * len(ours)
    assert await logged_seqs(database.pool, lost) == [1]


async def test_a_run_that_waits_is_saved_with_its_tickets_and_falls_silent(
    database: Database,
) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        journal, lost = voices.of(run)
        ears = voices.listen(run)
        journal.emit(TextDelta("May I?"), 1)
        waits = checkpoint_of(
            run, "May I?", state=suspended(), opened=[ticket_of(run)], said=[StepEnd()]
        )
        assert await journal.commit(waits) == CheckpointSaved()
        assert shown(await hear(ears, 2)) == [(2, "text_delta", "May I?"), (3, "step_end", "")]
        journal.emit(TextDelta("too late"), 2)
        await journal.lost.wait()
    assert lost == ["lost"]
    assert await logged_seqs(database.pool, run) == [1, 2, 3]


async def answered(database: Database) -> NewRun:
    """A run that executes, and has an answer that it doesn't know of."""
    run, clock = await running(database.pool), SystemClock()
    ticket = ticket_of(run)
    decision = Decision(
        decision_id="decision-1",
        answer=DecisionAnswer(action=Action.APPROVE),
        subject="somebody",
        at=clock.now(),
    )
    async with database.transaction() as connection:
        assert await runs.lock(connection, run.tenant, run.id) is not None
        await tickets.open_all(connection, run.tenant, [ticket])
        await decisions.decide(connection, run.tenant, ticket.id, decision)
    return run


async def test_a_run_does_not_sleep_over_an_answer(database: Database) -> None:
    run = await answered(database)
    async with writing(database) as voices:
        journal, _ = voices.of(run)
        ears = voices.listen(run)
        journal.emit(TextDelta("May I?"), 1)
        waits = checkpoint_of(run, "May I?", state=suspended(), said=[StepEnd()])
        assert await journal.commit(waits) == DecidedConcurrently()
        # What was said before is still to be heard, what the checkpoint would have said isn't.
        journal.emit(TextDelta("Thanks"), 2)
        heard = shown(await hear(ears, 2))
    assert heard == [(2, "text_delta", "May I?"), (3, "text_delta", "Thanks")]


async def test_a_writer_that_stops_leaves_nobody_waiting(
    database: Database, database_url: str
) -> None:
    run = await running(database.pool)
    async with outsider(database_url) as command, writing(database) as voices:
        async with command.transaction():
            await command.execute(
                "SELECT FROM threads WHERE id = $1 FOR NO KEY UPDATE", run.thread_id
            )
            commit = voices.of(run)[0].commit(checkpoint_of(run, "Hi"))
            saving = asyncio.gather(commit, return_exceptions=True)
            await until_somebody_waits(command)
            voices.writing.cancel()
            [answer] = await saving
    assert isinstance(answer, OwnershipLost)


async def until_somebody_waits(connection: RawConnection) -> None:
    while not await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ):
        pass


# --- when connections die -------------------------------------------------------------------------


async def test_every_event_is_logged_once_though_connections_die(
    database: Database, database_url: str
) -> None:
    speakers = [await running(database.pool) for _ in range(10)]
    words = [f"word {number}" for number in range(60)]
    async with outsider(database_url) as killer, writing(database) as voices:

        async def talk(run: NewRun) -> None:
            journal, _ = voices.of(run)
            ears = voices.listen(run)
            heard = 0
            for place, word in enumerate(words, 1):
                # Another step each time, so that none are joined.
                journal.emit(TextDelta(word), place)
                if place % 20 == 10:
                    saved = checkpoint_of(run, said=[StepEnd()])
                    assert await journal.commit(saved) == CheckpointSaved()
                elif place % 4 == 0:
                    heard += len(await hear(ears, 1))
                if run is speakers[0] and place % 15 == 0:
                    journal.emit(TextDelta("killing"), 0)
                    await kill_others(killer)
            said = len(words) + 3 + (4 if run is speakers[0] else 0)
            await hear(ears, said - heard)

        await asyncio.gather(*map(talk, speakers))

    for run in speakers:
        told = [delta for delta in await logged_deltas(database, run) if delta != "killing"]
        assert told == words
        seqs = await logged_seqs(database.pool, run)
        assert seqs == [*range(1, len(seqs) + 1)]


async def test_an_end_is_saved_once_though_its_connection_dies(
    database: Database, database_url: str
) -> None:
    run = await running(database.pool)
    async with outsider(database_url) as killer, writing(database) as voices:
        journal, _ = voices.of(run)
        async with asyncio.TaskGroup() as tasks:
            async with killer.transaction():
                await killer.execute(
                    "SELECT FROM threads WHERE id = $1 FOR NO KEY UPDATE", run.thread_id
                )
                ending = tasks.create_task(
                    journal.commit(checkpoint_of(run, "Bye", state=done(), said=[StepEnd()]))
                )
                await until_somebody_waits(killer)
                await kill_others(killer)
        assert ending.result() == CheckpointSaved()
    assert await logged_seqs(database.pool, run) == [1, 2]
    assert await database.pool.fetchval("SELECT status FROM runs") == "done"


# --- when a commit lands and nobody is told -------------------------------------------------------


@asynccontextmanager
async def behind_a_lossy_wire(url: str) -> AsyncIterator[tuple[Forwarder, Database]]:
    async with forwarding(url) as way:
        database = await Database.open(way.url, DatabaseOptions(pool_size=2, hot_pool_size=2))
        try:
            yield way, database
        finally:
            await database.close()


async def test_a_flush_whose_reply_is_lost_is_logged_and_heard_once(database_url: str) -> None:
    async with behind_a_lossy_wire(database_url) as (way, database):
        run = await running(database.pool)
        way.lose_reply_to(b"lost reply")
        async with writing(database) as voices:
            ears = voices.listen(run)
            journal, _ = voices.of(run)
            journal.emit(TextDelta("lost reply"), 1)
            heard = await hear(ears, 1)
            journal.emit(TextDelta("and on"), 2)
            heard += await hear(ears, 1)
        assert way.cuts == 1
        assert shown(heard) == [(2, "text_delta", "lost reply"), (3, "text_delta", "and on")]
        assert await logged_deltas(database, run) == ["lost reply", "and on"]


@pytest.mark.parametrize("said", [[StepEnd()], []], ids=["with events", "without events"])
@pytest.mark.parametrize("ending", ["running", "waiting", "done"])
async def test_a_checkpoint_whose_reply_is_lost_is_saved_once(
    database_url: str, ending: str, said: list[StepEnd]
) -> None:
    async with behind_a_lossy_wire(database_url) as (way, database):
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
            said=said,
        )
        way.lose_reply_to(b"lost reply")
        async with writing(database) as voices:
            journal, lost = voices.of(run)
            ears = voices.listen(run)
            # Whether the run is paused was in the reply: its next step border has to ask.
            assert await journal.commit(checkpoint) == CheckpointSaved(is_paused=True)
            if said:
                assert shown(await hear(ears, 1)) == [(2, "step_end", "")]
        assert way.cuts == 1
        assert lost == []
        assert await database.pool.fetchval("SELECT status FROM runs") == ending
        log = await messages.history(database.pool, run.tenant, run.thread_id)
        assert [entry.message.text for entry in log] == ["Hello", "lost reply"]
        assert await logged_seqs(database.pool, run) == [*range(1, 2 + len(said))]


async def test_a_checkpoint_that_writes_nothing_loses_its_connection_and_is_heard_once(
    database_url: str,
) -> None:
    async with behind_a_lossy_wire(database_url) as (way, database):
        run = await answered(database)
        async with writing(database) as voices:
            journal, _ = voices.of(run)
            ears = voices.listen(run)
            journal.held = True
            journal.emit(TextDelta("May I?"), 1)
            way.lose(b"COMMIT")
            waits = checkpoint_of(run, "May I?", state=suspended(), said=[StepEnd()])
            assert await journal.commit(waits) == DecidedConcurrently()
            journal.emit(TextDelta("Thanks"), 2)
            heard = shown(await hear(ears, 2))
        assert way.cuts == 1
        assert heard == [(2, "text_delta", "May I?"), (3, "text_delta", "Thanks")]
        assert await logged_deltas(database, run) == ["May I?", "Thanks"]
