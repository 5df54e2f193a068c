"""Following: every event once and in order, live or from the log, and an end after the last one."""

import asyncio
import json

import pytest

from app.domain.checkpoints import PendingEvent
from app.domain.errors import Gone
from app.domain.events.run_events import PauseRequested, RunFinish, RunStart
from app.domain.events.step_events import StepStart, TextDelta
from app.domain.events.tool_call_events import ActivitySnapshot
from app.domain.runs.runs import Waiting, WaitingReason
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.events.fanout.hub import MAX_BACKLOG_BYTES
from app.events.follow import check_cursor, last_cursor, read_page
from app.events.selection import EventSelection
from app.storage.events import batched_append, event_log
from app.storage.events.event_log import EventEntry
from app.storage.postgres.database import Database
from app.storage.postgres.notifications import listen
from app.storage.runs import claims, pauses
from app.storage.tickets import decisions
from tests.support.emitters import TIMEOUT_SECONDS, writing
from tests.support.following import NOW, emit, following, log_unpublished, scope_of, suspend_run
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

pytestmark = pytest.mark.anyio

# --- no gap, no duplicate -------------------------------------------------------------------------


async def test_logged_events_come_before_live_ones(database: Database) -> None:
    run = await running(database.pool)
    # Exactly two full pages, so that a reader has to query once more to find the end.
    await log_unpublished(database, run, 999)
    async with writing(database) as emitters:
        async with following(database, emitters, scope_of(run)) as reader:
            assert await reader.until(1000) == [*range(1, 1001)]
            await emit(emitters, run, "live")
            assert await reader.until(1001) == [*range(1, 1002)]
        async with following(database, emitters, scope_of(run), after=998) as reader:
            assert await reader.until(3) == [999, 1000, 1001]


async def test_readers_get_every_event_while_many_write(database: Database) -> None:
    run = await running(database.pool)
    total = 1 + 60 + 30 + 30
    async with writing(database) as emitters:
        journal, _ = emitters.of(run)

        async def emit_events() -> None:
            for step in range(60):
                journal.emit(TextDelta("spoken"), step)
                await database.ping()

        async def command() -> None:
            for _ in range(30):
                await emit(emitters, run, "commanded")

        async def other_process() -> None:
            for _ in range(30):
                async with database.transaction() as connection:
                    emitted = [(run.id, entry) for entry in deltas("x")]
                    await event_log.append_events(
                        connection, run.tenant, run.thread_id, emitted, NOW()
                    )
                emitters.hub.hint((run.tenant, run.thread_id))

        async def read(after: int) -> list[int]:
            await database.ping()
            async with following(database, emitters, scope_of(run), after=after) as reader:
                return await reader.until(total - after)

        cursors = [0, 0, 1, 1]
        *received, _, _, _ = await asyncio.gather(
            *(read(cursor) for cursor in cursors), emit_events(), command(), other_process()
        )
    assert received == [[*range(cursor + 1, total + 1)] for cursor in cursors]


async def test_events_of_lost_notifications_are_read_from_the_log(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        subscription = emitters.listen(run)
        async with following(
            database, emitters, scope_of(run), after=1, subscription=subscription
        ) as reader:
            for batch in range(10):
                await emit(emitters, run, "a", "b")
                if batch % 3 == 0:
                    subscription.mark_missed()
                if batch % 4 == 0:
                    await log_unpublished(database, run, 1)
                if batch % 2:
                    await reader.until(2 * batch)
            await emit(emitters, run, "last")
            assert await reader.until(24) == [*range(2, 26)]


async def test_a_reader_that_falls_far_behind_reads_the_log(database: Database) -> None:
    run = await running(database.pool)
    large = "x" * (MAX_BACKLOG_BYTES // 5)
    async with writing(database) as emitters:
        async with following(
            database, emitters, scope_of(run), after=1, subscription=emitters.listen(run)
        ) as reader:
            for _ in range(8):
                await emit(emitters, run, large)
            assert await reader.until(8) == [*range(2, 10)]


async def test_a_frame_is_the_same_pushed_or_read(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        async with following(
            database, emitters, scope_of(run), after=1, subscription=emitters.listen(run)
        ) as pushed:
            await emit(emitters, run, 'Grüße "an" alle\n')
            await pushed.until(1)
        async with following(database, emitters, scope_of(run), after=1) as read:
            await read.until(1)
    assert pushed.whole_frames == read.whole_frames
    body = json.loads(read.received[0].json)
    assert (body["seq"], body["delta"]) == (2, 'Grüße "an" alle\n')


async def test_a_reader_is_ready_when_its_first_frames_are_there(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        async with following(database, emitters, scope_of(run)) as logged:
            before = logged.follower.is_ready
            assert await logged.follower.read_first_page("/snapshot")
            assert (before, logged.follower.is_ready) == (False, True)
        live = emitters.listen(run)
        async with following(
            database, emitters, scope_of(run), after=1, subscription=live
        ) as pushed:
            before = pushed.follower.is_ready
            await emit(emitters, run, "live")
            assert (before, pushed.follower.is_ready) == (False, True)


@pytest.mark.parametrize(
    "selected, is_ready",
    [
        (EventSelection(without=frozenset({StepStart.event_type})), True),
        (EventSelection(only=frozenset({TextDelta.event_type})), True),
        (EventSelection(without=frozenset({TextDelta.event_type})), False),
        (EventSelection(only=frozenset({StepStart.event_type})), False),
    ],
)
async def test_a_reader_is_ready_if_its_next_frame_is_one_that_it_shows(
    database: Database, selected: EventSelection, is_ready: bool
) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        live = emitters.listen(run)
        async with following(
            database, emitters, scope_of(run), after=1, subscription=live, selected=selected
        ) as pushed:
            await emit(emitters, run, "live")
            assert pushed.follower.is_ready is is_ready
        async with following(
            database, emitters, scope_of(run), after=1, selected=selected
        ) as logged:
            await logged.follower.read_first_page("/snapshot")
            assert logged.follower.is_ready is is_ready


async def test_a_reader_isnt_ready_if_it_missed_events(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        live = emitters.listen(run)
        async with following(
            database, emitters, scope_of(run), after=0, subscription=live
        ) as reader:
            await emit(emitters, run, "the second event")
            assert not reader.follower.is_ready
            assert await reader.until(2) == [1, 2]


async def test_a_reader_knows_that_it_has_the_last_frames_of_its_run(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        live = emitters.listen(run)
        async with following(
            database, emitters, scope_of(run, run.id), after=1, subscription=live
        ) as reader:
            await emit(emitters, run, "live")
            await reader.until(1)
            before = reader.follower.has_ended
            finish = RunFinish({}, "done", {"type": "natural_end"})
            async with emitters.outgoing.transaction() as transaction:
                transaction.emit(run.tenant, run.thread_id, run.id, finish)
            await reader.until(2)
            assert (before, reader.follower.has_ended) == (False, True)
            assert await reader.to_the_end() == [2, 3]


async def test_closed_readers_are_forgotten(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        async with following(database, emitters, scope_of(run)) as reader:
            await reader.until(1)
            assert emitters.hub.subscribers == 1
        assert emitters.hub.subscribers == 0
        assert emitters.hub.followed() == []


# --- scopes and ends ------------------------------------------------------------------------------


async def test_a_run_is_followed_without_its_neighbours_and_to_its_end(database: Database) -> None:
    first = await running(database.pool)
    async with writing(database) as emitters:
        await suspend_run(emitters, first, done())
        second = some_run(thread_id=first.thread_id)
        assert await admit(database.pool, second, await worker(database.pool))
        async with following(database, emitters, scope_of(second, second.id)) as reader:
            await reader.until(1)
            await emit(emitters, second, "Hi")
            await suspend_run(emitters, second, done())
            assert await reader.to_the_end() == [3, 4, 5]
        async with following(database, emitters, scope_of(first, first.id)) as reader:
            assert await reader.to_the_end() == [1, 2]
        async with following(database, emitters, scope_of(first), heartbeat=0.1) as reader:
            assert await reader.until(5) == [1, 2, 3, 4, 5]
            await reader.expect_no_frames()


async def test_a_cursor_beyond_the_end_of_a_run_is_refused_before_the_stream(
    database: Database,
) -> None:
    run = await running(database.pool)
    scope = scope_of(run, run.id)
    async with writing(database) as emitters:
        await suspend_run(emitters, run, done())
    assert await check_cursor(database.pool, scope, 1, "/snapshot")
    assert not await check_cursor(database.pool, scope, 2, "/snapshot")
    with pytest.raises(Gone):
        await check_cursor(database.pool, scope, 3, "/snapshot")
    assert await last_cursor(database.pool, scope) == 2


async def test_a_suspended_run_ends_its_stream_unless_the_reader_waits_for_the_end(
    database: Database,
) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        await suspend_run(emitters, run, suspended(), ticket_of(run))
        async with following(database, emitters, scope_of(run, run.id)) as reader:
            assert await reader.to_the_end() == [1, 2]
        until_done = scope_of(run, run.id, until_done=True)
        async with following(database, emitters, until_done, heartbeat=0.1) as reader:
            assert await reader.until(2) == [1, 2]
            await reader.expect_no_frames()


@pytest.mark.parametrize(
    "wait",
    [
        Waiting(WaitingReason.CHILD_RUNS, "awaiting_children"),
        Waiting(WaitingReason.BACKGROUND_TASKS, "awaiting_tasks"),
        Waiting(WaitingReason.EXTERNAL_EVENT, "awaiting_event"),
        Waiting(WaitingReason.AGENT_VERSION_UNAVAILABLE, "no version"),
        Waiting(WaitingReason.RATE_LIMIT, "rate_limit", NOW()),
    ],
    ids=lambda wait: wait.reason.value,
)
async def test_a_wait_that_ends_without_a_person_ends_no_stream_of_old_or_new_readers(
    database: Database, wait: Waiting
) -> None:
    run = await running(database.pool)
    scope = scope_of(run, run.id)
    if wait.reason is WaitingReason.BACKGROUND_TASKS:
        await database.pool.execute("UPDATE runs SET open_tasks = 1 WHERE id = $1", run.id)
    async with (
        writing(database) as emitters,
        following(
            *(database, emitters, scope),
            after=1,
            heartbeat=0.1,
            subscription=emitters.listen(run),
        ) as follows,
    ):
        await suspend_run(emitters, run, wait)
        assert await follows.until(1) == [2]
        await follows.expect_no_frames()
        async with following(database, emitters, scope, after=1, heartbeat=0.1) as comes_back:
            assert await comes_back.until(1) == [2]
            await comes_back.expect_no_frames()


async def test_a_pause_ends_the_stream_of_a_waiting_run_because_a_person_has_to_resume_it(
    database: Database,
) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        await suspend_run(emitters, run, Waiting(WaitingReason.CHILD_RUNS, "awaiting_children"))
        async with following(
            database, emitters, scope_of(run, run.id), after=2, heartbeat=0.1
        ) as reader:
            await reader.expect_no_frames()
            async with emitters.outgoing.transaction() as transaction:
                await pauses.request(
                    transaction.connection, run.tenant, run.id, by="ann", reason=None
                )
                transaction.emit(run.tenant, run.thread_id, run.id, PauseRequested("ann"))
            assert await reader.to_the_end() == [3]


async def test_activities_of_tasks_after_the_suspension_leave_the_end_to_the_decision(
    database: Database,
) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        await suspend_run(emitters, run, suspended(), ticket_of(run))
        async with emitters.outgoing.transaction() as transaction:
            shown = ActivitySnapshot("c1", "progress", {"status": "running"}, True)
            transaction.emit(run.tenant, run.thread_id, run.id, shown)
        async with following(database, emitters, scope_of(run, run.id)) as reader:
            assert await reader.to_the_end() == [1, 2, 3]


async def test_events_emitted_before_a_reader_finds_the_run_done_are_read(
    database: Database,
) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        await suspend_run(emitters, run, suspended(), ticket_of(run))
        until_done = scope_of(run, run.id, until_done=True)
        async with following(database, emitters, until_done) as reader:
            assert await reader.until(2) == [1, 2]
            new_owner = await worker(database.pool)
            assert await claims.claim(
                database.pool, run.tenant, run.thread_id, run.id, new_owner, TIMEOUT
            )
            await suspend_run(emitters, run, done(), attempt=2)
            assert await reader.to_the_end() == [1, 2, 3]


async def test_a_stream_stays_open_while_a_decision_waits_to_be_applied(
    database: Database,
) -> None:
    run = await running(database.pool)
    ticket = ticket_of(run)
    decision = Decision(
        decision_id="decision-1",
        answer=DecisionAnswer(action=Action.APPROVE),
        subject="bob",
        at=NOW(),
    )
    async with writing(database) as emitters:
        await suspend_run(emitters, run, suspended(), ticket)
        async with database.transaction() as connection:
            await decisions.decide(connection, run.tenant, ticket.id, decision)
        async with following(database, emitters, scope_of(run, run.id), heartbeat=0.1) as reader:
            await reader.until(2)
            await reader.expect_no_frames()
            new_owner = await worker(database.pool)
            assert await claims.claim(
                database.pool, run.tenant, run.thread_id, run.id, new_owner, TIMEOUT
            )
            journal, _ = emitters.of(run, attempt=2)
            journal.emit(RunStart({}), None)
            await reader.until(3)
            await database.pool.execute("UPDATE tickets SET applied_at = now()")
            await suspend_run(emitters, run, done(), attempt=2)
            await reader.until(4)
            await reader.to_the_end()
    assert reader.types == ["run_created", "run_finish", "run_start", "run_finish"]


async def test_pages_follow_each_other(database: Database) -> None:
    run = await running(database.pool)
    await log_unpublished(database, run, 4)
    scope = scope_of(run)
    first, _, more = await read_page(database.pool, scope, 0, 3)
    last, _, no_more = await read_page(database.pool, scope, 3, 3)
    assert [frame.seq for frame in (*first, *last)] == [1, 2, 3, 4, 5]
    assert (more, no_more) == (True, False)


@pytest.mark.parametrize("pieces", [3, 4, 5])
async def test_large_events_are_read_a_few_at_a_time(database: Database, pieces: int) -> None:
    """A reader blocked by its client holds one page in memory, and misses no event between pages."""
    run = await running(database.pool)
    bodies = [body_of(event_log.MAX_PAGE_BYTES // pieces) for _ in range(3 * pieces)]
    flush = batched_append.Flush(run.tenant, run.thread_id, run.id, 1, bodies)
    assert await batched_append.flush(database.pool, [flush], NOW())
    read: list[list[int]] = []
    after, more = 0, True
    while more:
        frames, _, more = await read_page(database.pool, scope_of(run), after, 500)
        read.append([frame.seq for frame in frames])
        after = frames[-1].seq if frames else after
    assert sum(read, []) == list(range(1, 3 * pieces + 2))
    assert max(map(len, read)) <= pieces + 1
    async with writing(database) as emitters:
        async with following(database, emitters, scope_of(run)) as reader:
            assert await reader.until(3 * pieces + 1) == sum(read, [])


async def test_an_event_larger_than_a_page_is_read_alone(database: Database) -> None:
    run = await running(database.pool)
    bodies = [body_of(2 * event_log.MAX_PAGE_BYTES) for _ in range(2)]
    flush = batched_append.Flush(run.tenant, run.thread_id, run.id, 1, bodies)
    assert await batched_append.flush(database.pool, [flush], NOW())
    first, _, more = await read_page(database.pool, scope_of(run), 1, 500)
    last, _, _ = await read_page(database.pool, scope_of(run), 2, 500)
    assert [[frame.seq for frame in frames] for frames in (first, last)] == [[2], [3]]
    assert more


def body_of(size: int) -> EventEntry:
    """A delta whose stored body has exactly this many bytes."""
    empty = event_log.entry(PendingEvent(TextDelta(""), 1))
    return event_log.entry(PendingEvent(TextDelta("x" * (size - len(empty.body))), 1))


# --- between processes ----------------------------------------------------------------------------


async def test_catching_up_finds_events_without_a_notification(database: Database) -> None:
    run, other = await running(database.pool), await running(database.pool)
    async with (
        writing(database) as here,
        writing(database) as without_database,
        following(
            database,
            without_database,
            scope_of(run),
            after=1,
            subscription=without_database.listen(run),
        ) as reader,
    ):
        quiet = without_database.listen(other)
        quiet.cursor = 1
        await emit(here, run, "a", "b")
        await without_database.relay.catch_up()
        assert await reader.until(2) == [2, 3]
        assert quiet.is_idle
        quiet.close()


async def test_a_listener_whose_connection_dies_returns(database: Database) -> None:
    connected = asyncio.Event()
    async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(
            listen(database, {"some_hints": lambda _: None}, on_connected=connected.set)
        )
        await connected.wait()
        await database.pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        await listening


# --- events of commands ---------------------------------------------------------------------------


async def test_events_of_a_failed_command_are_never_published(database: Database) -> None:
    run = await running(database.pool)
    async with writing(database) as emitters:
        subscription = emitters.listen(run)

        async def fail() -> None:
            async with emitters.outgoing.transaction() as transaction:
                transaction.emit(run.tenant, run.thread_id, run.id, TextDelta("no"))
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert subscription.is_idle
        assert await last_cursor(database.pool, scope_of(run)) == 1
        subscription.close()


async def test_a_command_emits_for_several_runs_of_one_thread_only(database: Database) -> None:
    run, other_thread_run = await running(database.pool), await running(database.pool)
    neighbour = some_run(thread_id=run.thread_id)
    async with writing(database) as emitters:
        async with following(
            database, emitters, scope_of(run), after=1, subscription=emitters.listen(run)
        ) as reader:
            async with emitters.outgoing.transaction() as transaction:
                for emitter in (run, neighbour, run):
                    transaction.emit(run.tenant, run.thread_id, emitter.id, TextDelta("one"))
            assert await reader.until(3) == [2, 3, 4]
            assert [frame.run_id for frame in reader.received] == [run.id, neighbour.id, run.id]

        async def mix() -> None:
            async with emitters.outgoing.transaction() as transaction:
                transaction.emit(run.tenant, run.thread_id, run.id, TextDelta("here"))
                transaction.emit(run.tenant, other_thread_run.thread_id, run.id, TextDelta("there"))

        with pytest.raises(RuntimeError, match="one thread only"):
            await mix()
