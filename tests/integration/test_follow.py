"""Following: every event once and in order, however it travels, and an end when there is no more."""

import asyncio
import json

import pytest

from app.domain.checkpoints import PendingEvent
from app.domain.errors import Gone
from app.domain.events.run_events import RunStart, TextDelta
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.events.fanout.hub import MAX_BACKLOG_FRAMES
from app.events.follow import check_cursor, last_cursor, read_page
from app.storage.events import batched_append, event_log
from app.storage.events.event_log import EventEntry
from app.storage.postgres.database import Database
from app.storage.postgres.notifications import listen
from app.storage.runs import claims
from app.storage.tickets import decisions, tickets
from tests.support.following import NOW, come_to_rest, following, log_unheard, say, scope_of
from tests.support.stored_runs import (
    TIMEOUT,
    admit,
    deltas,
    done,
    running,
    some_run,
    suspended,
    ticket_of,
    worker,
)
from tests.support.voices import PATIENCE, writing

pytestmark = pytest.mark.anyio

# --- no gap, no duplicate -------------------------------------------------------------------------


async def test_what_was_logged_comes_before_what_is_said(database: Database) -> None:
    run = await running(database.pool)
    # Two full pages exactly, so that a reader has to ask again to know.
    await log_unheard(database, run, 999)
    async with writing(database) as voices:
        async with following(database, voices, scope_of(run)) as reader:
            assert await reader.until(1000) == [*range(1, 1001)]
            await say(voices, run, "live")
            assert await reader.until(1001) == [*range(1, 1002)]
        async with following(database, voices, scope_of(run), after=998) as reader:
            assert await reader.until(3) == [999, 1000, 1001]


async def test_readers_miss_nothing_while_many_write(database: Database) -> None:
    run = await running(database.pool)
    total = 1 + 60 + 30 + 30
    async with writing(database) as voices:
        journal, _ = voices.of(run)

        async def speak() -> None:
            for step in range(60):
                journal.emit(TextDelta("spoken"), step)
                await database.ping()

        async def command() -> None:
            for _ in range(30):
                await say(voices, run, "commanded")

        async def elsewhere() -> None:
            for _ in range(30):
                async with database.transaction() as connection:
                    said = [(run.id, entry) for entry in deltas("x")]
                    await event_log.append_events(
                        connection, run.tenant, run.thread_id, said, NOW()
                    )
                voices.hub.hint((run.tenant, run.thread_id))

        async def read(after: int) -> list[int]:
            await database.ping()
            async with following(database, voices, scope_of(run), after=after) as reader:
                return await reader.until(total - after)

        cursors = [0, 0, 1, 1]
        *heard, _, _, _ = await asyncio.gather(
            *(read(cursor) for cursor in cursors), speak(), command(), elsewhere()
        )
    assert heard == [[*range(cursor + 1, total + 1)] for cursor in cursors]


async def test_lost_hints_are_made_up_for_by_the_log(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        subscription = voices.listen(run)
        async with following(
            database, voices, scope_of(run), after=1, subscription=subscription
        ) as reader:
            for batch in range(10):
                await say(voices, run, "a", "b")
                if batch % 3 == 0:
                    subscription.mark_missed()
                if batch % 4 == 0:
                    await log_unheard(database, run, 1)
                if batch % 2:
                    await reader.until(2 * batch)
            await say(voices, run, "last")
            assert await reader.until(24) == [*range(2, 26)]


async def test_a_reader_that_falls_far_behind_reads_the_log(database: Database) -> None:
    run = await running(database.pool)
    large = "x" * (MAX_BACKLOG_FRAMES // 5)
    async with writing(database) as voices:
        async with following(
            database, voices, scope_of(run), after=1, subscription=voices.listen(run)
        ) as reader:
            for _ in range(8):
                await say(voices, run, large)
            assert await reader.until(8) == [*range(2, 10)]


async def test_a_frame_is_the_same_pushed_or_read(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        async with following(
            database, voices, scope_of(run), after=1, subscription=voices.listen(run)
        ) as pushed:
            await say(voices, run, 'Grüße "an" alle\n')
            await pushed.until(1)
        async with following(database, voices, scope_of(run), after=1) as read:
            await read.until(1)
    assert pushed.heard == read.heard
    body = json.loads(read.heard[0].json)
    assert (body["seq"], body["delta"]) == (2, 'Grüße "an" alle\n')


async def test_closed_readers_are_forgotten(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        async with following(database, voices, scope_of(run)) as reader:
            await reader.until(1)
            assert voices.hub.subscribers == 1
        assert voices.hub.subscribers == 0
        assert voices.hub.followed() == []


# --- scopes and ends ------------------------------------------------------------------------------


async def test_a_run_is_followed_without_its_neighbours_and_to_its_end(database: Database) -> None:
    first = await running(database.pool)
    async with writing(database) as voices:
        await come_to_rest(voices, first, done())
        second = some_run(thread_id=first.thread_id)
        assert await admit(database.pool, second, await worker(database.pool))
        async with following(database, voices, scope_of(second, second.id)) as reader:
            await reader.until(1)
            await say(voices, second, "Hi")
            await come_to_rest(voices, second, done())
            assert await reader.to_the_end() == [3, 4, 5]
        async with following(database, voices, scope_of(first, first.id)) as reader:
            assert await reader.to_the_end() == [1, 2]
        async with following(database, voices, scope_of(first), heartbeat=0.1) as reader:
            assert await reader.until(5) == [1, 2, 3, 4, 5]
            await reader.silence()


async def test_a_cursor_behind_the_end_of_a_run_is_told_before(database: Database) -> None:
    run = await running(database.pool)
    scope = scope_of(run, run.id)
    async with writing(database) as voices:
        await come_to_rest(voices, run, done())
    assert await check_cursor(database.pool, scope, 1, "/snapshot")
    assert not await check_cursor(database.pool, scope, 2, "/snapshot")
    with pytest.raises(Gone):
        await check_cursor(database.pool, scope, 3, "/snapshot")
    assert await last_cursor(database.pool, scope) == 2


async def test_a_run_at_rest_ends_its_stream_unless_the_end_is_wanted(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        await come_to_rest(voices, run, suspended(), ticket_of(run))
        async with following(database, voices, scope_of(run, run.id)) as reader:
            assert await reader.to_the_end() == [1, 2]
        wants_the_end = scope_of(run, run.id, until_done=True)
        async with following(database, voices, wants_the_end, heartbeat=0.1) as reader:
            assert await reader.until(2) == [1, 2]
            await reader.silence()


async def test_what_is_said_before_a_reader_finds_the_run_done_is_heard(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        await come_to_rest(voices, run, suspended(), ticket_of(run))
        wants_the_end = scope_of(run, run.id, until_done=True)
        async with following(database, voices, wants_the_end) as reader:
            assert await reader.until(2) == [1, 2]
            me = await worker(database.pool)
            assert await claims.claim(database.pool, run.tenant, run.thread_id, run.id, me, TIMEOUT)
            await come_to_rest(voices, run, done(), attempt=2)
            assert await reader.to_the_end() == [1, 2, 3]


async def test_a_stream_stays_open_for_an_answer_that_is_yet_to_be_used(
    database: Database,
) -> None:
    run = await running(database.pool)
    ticket = ticket_of(run)
    decision = Decision(
        decision_id="decision-1",
        answer=DecisionAnswer(action=Action.APPROVE),
        subject="somebody",
        at=NOW(),
    )
    async with writing(database) as voices:
        await come_to_rest(voices, run, suspended(), ticket)
        async with database.transaction() as connection:
            await decisions.decide(connection, run.tenant, ticket.id, decision)
        async with following(database, voices, scope_of(run, run.id), heartbeat=0.1) as reader:
            await reader.until(2)
            await reader.silence()
            me = await worker(database.pool)
            assert await claims.claim(database.pool, run.tenant, run.thread_id, run.id, me, TIMEOUT)
            journal, _ = voices.of(run, attempt=2)
            journal.emit(RunStart({}), None)
            await reader.until(3)
            async with database.transaction() as connection:
                await tickets.mark_applied(connection, run.tenant, [ticket.id])
            await come_to_rest(voices, run, done(), attempt=2)
            await reader.until(4)
            await reader.to_the_end()
    assert reader.types == ["run_created", "run_finish", "run_start", "run_finish"]


async def test_pages_follow_each_other(database: Database) -> None:
    run = await running(database.pool)
    await log_unheard(database, run, 4)
    scope = scope_of(run)
    first, more = await read_page(database.pool, scope, 0, 3)
    last, no_more = await read_page(database.pool, scope, 3, 3)
    assert [frame.seq for frame in (*first, *last)] == [1, 2, 3, 4, 5]
    assert (more, no_more) == (True, False)


@pytest.mark.parametrize("pieces", [3, 4, 5])
async def test_large_events_are_read_a_few_at_a_time(database: Database, pieces: int) -> None:
    """Whoever is held up by its client holds no more of them, and misses none at the borders."""
    run = await running(database.pool)
    bodies = [body_of(event_log.MAX_PAGE_EVENTS // pieces) for _ in range(3 * pieces)]
    flush = batched_append.Flush(run.tenant, run.thread_id, run.id, 1, bodies)
    assert await batched_append.flush(database.pool, [flush], NOW())
    read: list[list[int]] = []
    after, more = 0, True
    while more:
        frames, more = await read_page(database.pool, scope_of(run), after, 500)
        read.append([frame.seq for frame in frames])
        after = frames[-1].seq if frames else after
    assert sum(read, []) == list(range(1, 3 * pieces + 2))
    assert max(map(len, read)) <= pieces + 1
    async with writing(database) as voices:
        async with following(database, voices, scope_of(run)) as reader:
            assert await reader.until(3 * pieces + 1) == sum(read, [])


async def test_an_event_larger_than_a_stretch_is_read_alone(database: Database) -> None:
    run = await running(database.pool)
    bodies = [body_of(2 * event_log.MAX_PAGE_EVENTS) for _ in range(2)]
    flush = batched_append.Flush(run.tenant, run.thread_id, run.id, 1, bodies)
    assert await batched_append.flush(database.pool, [flush], NOW())
    first, more = await read_page(database.pool, scope_of(run), 1, 500)
    last, _ = await read_page(database.pool, scope_of(run), 2, 500)
    assert [[frame.seq for frame in frames] for frames in (first, last)] == [[2], [3]]
    assert more


def body_of(size: int) -> EventEntry:
    """A delta whose stored body has exactly this many bytes."""
    empty = event_log.entry(PendingEvent(TextDelta(""), 1))
    return event_log.entry(PendingEvent(TextDelta("x" * (size - len(empty.body))), 1))


# --- between processes ----------------------------------------------------------------------------


async def test_catching_up_finds_what_no_hint_told(database: Database) -> None:
    run, other = await running(database.pool), await running(database.pool)
    async with (
        writing(database) as here,
        writing(database) as deaf,
        following(database, deaf, scope_of(run), after=1, subscription=deaf.listen(run)) as reader,
    ):
        quiet = deaf.listen(other)
        quiet.cursor = 1
        await say(here, run, "a", "b")
        await deaf.relay.catch_up()
        assert await reader.until(2) == [2, 3]
        assert quiet.is_idle
        quiet.close()


async def test_a_listener_whose_connection_dies_comes_back_to_say_so(database: Database) -> None:
    connected = asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(
            listen(database, {"some_hints": lambda _: None}, on_connected=connected.set)
        )
        await connected.wait()
        await database.pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        await listening


# --- what commands say ----------------------------------------------------------------------------


async def test_what_a_failed_command_would_have_said_is_never_heard(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as voices:
        ears = voices.listen(run)

        async def fail() -> None:
            async with voices.outgoing.transaction() as transaction:
                transaction.emit(run.tenant, run.thread_id, run.id, TextDelta("no"))
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert ears.is_idle
        assert await last_cursor(database.pool, scope_of(run)) == 1
        ears.close()


async def test_a_command_speaks_for_several_runs_of_one_thread_only(database: Database) -> None:
    run, elsewhere = await running(database.pool), await running(database.pool)
    neighbour = some_run(thread_id=run.thread_id)
    async with writing(database) as voices:
        async with following(
            database, voices, scope_of(run), after=1, subscription=voices.listen(run)
        ) as reader:
            async with voices.outgoing.transaction() as transaction:
                for speaker in (run, neighbour, run):
                    transaction.emit(run.tenant, run.thread_id, speaker.id, TextDelta("one"))
            assert await reader.until(3) == [2, 3, 4]
            assert [frame.run_id for frame in reader.heard] == [run.id, neighbour.id, run.id]

        async def mix() -> None:
            async with voices.outgoing.transaction() as transaction:
                transaction.emit(run.tenant, run.thread_id, run.id, TextDelta("here"))
                transaction.emit(run.tenant, elsewhere.thread_id, run.id, TextDelta("there"))

        with pytest.raises(RuntimeError, match="one thread only"):
            await mix()
