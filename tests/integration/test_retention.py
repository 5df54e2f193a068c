"""Retention: what is old takes less room, is done once by whoever comes first, and misleads no reader."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.clock import new_id
from app.domain.errors import Gone
from app.domain.events.run_events import (
    AgentEvent,
    InferenceComplete,
    ReasoningDelta,
    StepEnd,
    StepStart,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
)
from app.domain.ids import RunId, Tenant
from app.domain.json_values import JsonObject
from app.domain.runs.runs import NewRun
from app.domain.tickets.tickets import TicketFilter
from app.events.fanout.hub import Hub
from app.events.follow import (
    StreamScope,
    check_cursor,
    first_cursor,
    follow,
    last_cursor,
    read_page,
)
from app.events.follow_tickets import check_cursor as check_inbox_cursor
from app.events.follow_tickets import first_cursor as beginning_of_inbox
from app.storage import retention
from app.storage.postgres.database import Database, RawPool
from app.storage.retention import FinishedRun
from app.storage.tickets import feed
from app.workers.periodic.retention import Retention, RetentionAges
from tests.support.following import come_to_rest
from tests.support.old_runs import LONG, age, end, old_run, speak
from tests.support.stored_runs import TENANT, admit, die, running, suspended, ticket_of, worker
from tests.support.voices import PATIENCE, writing

pytestmark = pytest.mark.anyio

WORDS = ["It ", "is ", 'a "fine" ', "day.\n", "Ö"]
SAID: list[AgentEvent] = [
    StepStart(new_id()),
    *map(ReasoningDelta, ("Well", "…")),
    *map(TextDelta, WORDS),
    ToolCallStart("one", "look"),
    *(ToolCallDelta("one", piece) for piece in ('{"at":', '"it"', "}")),
    ToolCallDone("one", new_id(), {"status": "success"}, "succeeded"),
    StepEnd(),
]
SAVED = 1 + 4 + 2
"""Rows that joining these saves: each message becomes one."""
KEEPS_EVERYTHING = RetentionAges()


def keeper(database: Database, ages: RetentionAges = KEEPS_EVERYTHING) -> Retention:
    return Retention(database, ages, interval=PATIENCE)


def thread_of(run: NewRun) -> StreamScope:
    return StreamScope(run.tenant, run.thread_id)


def alone(run: NewRun) -> StreamScope:
    return StreamScope(run.tenant, run.thread_id, run.id)


async def heard(database: Database, scope: StreamScope, after: int = 0) -> list[JsonObject]:
    frames, _ = await read_page(database.pool, scope, after, 500)
    return [json.loads(frame.json) for frame in frames]


def texts(said: list[JsonObject]) -> dict[str, str]:
    """All that was said piece by piece, put together as a client does."""
    whole: dict[str, str] = {}
    for event in said:
        piece = event.get("delta", event.get("args_delta"))
        if piece is not None:
            whole[event["event_type"]] = whole.get(event["event_type"], "") + piece
    return whole


async def refused(database: Database, scope: StreamScope, after: int) -> dict[str, Any]:
    with pytest.raises(Gone) as gone:
        await check_cursor(database.pool, scope, after, "/snapshot")
    assert gone.value.code == "cursor_expired"
    assert gone.value.facts["snapshot"] == "/snapshot"
    return dict(gone.value.facts)


async def count(pool: RawPool, table: str) -> int:
    found: int = await pool.fetchval(f"SELECT count(*) FROM {table}")
    return found


# --- deltas ---------------------------------------------------------------------------------------


async def test_each_message_of_an_old_run_becomes_one_delta(database: Database) -> None:
    run = await old_run(database.pool, SAID)
    before = await heard(database, thread_of(run))
    rows = await keeper(database).run_once()
    after = await heard(database, thread_of(run))
    assert rows["merge_deltas"] == SAVED == len(before) - len(after)
    assert texts(after) == texts(before)
    as_before = {event["seq"]: event for event in before}
    for event in after:
        was = as_before[event["seq"]]
        assert event == was or event["event_type"].endswith("_delta")
    assert await last_cursor(database.pool, thread_of(run)) == len(before)
    stretches = [event["seq"] for event in after]
    first = await database.pool.fetch(
        "SELECT coalesce(from_seq, seq) AS at FROM events ORDER BY seq"
    )
    assert [row["at"] for row in first] == [1, *(seq + 1 for seq in stretches[:-1])]


async def test_a_cursor_inside_what_was_merged_is_sent_to_the_snapshot(database: Database) -> None:
    run = await old_run(database.pool, SAID)
    before = await heard(database, thread_of(run))
    await keeper(database).run_once()
    merged = {event["seq"] for event in before} - {
        event["seq"] for event in await heard(database, thread_of(run))
    }
    assert len(merged) == SAVED
    for event in before:
        for scope in (thread_of(run), alone(run)):
            if event["seq"] in merged:
                facts = await refused(database, scope, event["seq"])
                assert facts["oldest_available"] > event["seq"]
                assert facts["last_event_id"] == len(before)
            else:
                seen = [one for one in before if one["seq"] <= event["seq"]]
                assert await check_cursor(database.pool, scope, event["seq"], "/snapshot") == (
                    event is not before[-1]
                )
                rest = await heard(database, scope, event["seq"])
                assert texts([*seen, *rest]) == texts(before)


async def test_a_reader_that_is_overtaken_by_the_merging_is_cut(database: Database) -> None:
    run = await old_run(database.pool, [TextDelta("x")] * 700)
    follower = follow(database.pool, Hub(), thread_of(run), after=0, heartbeat=PATIENCE)
    frames = follower.frames()
    first = await anext(frames)
    assert first is not None
    assert first[-1].seq == 500
    await keeper(database).run_once()
    with pytest.raises(Gone):
        await anext(frames)
    await frames.aclose()
    follower.close()


async def test_runs_that_are_young_or_not_done_stay_as_they_are(database: Database) -> None:
    young, at_work = await running(database.pool), await running(database.pool)
    for run in (young, at_work):
        await speak(database.pool, run, *SAID)
    await end(database.pool, young)
    async with writing(database) as voices:
        waiting = await running(database.pool)
        await speak(database.pool, waiting, *SAID)
        await come_to_rest(voices, waiting, suspended(), ticket_of(waiting))
    assert (await keeper(database).run_once())["merge_deltas"] == 0
    await age(database.pool, young, timedelta(hours=2))
    assert (await keeper(database).run_once())["merge_deltas"] == SAVED


async def test_what_others_say_between_the_pieces_keeps_its_place(database: Database) -> None:
    run = await running(database.pool)
    await speak(database.pool, run, TextDelta("a"), TextDelta("b"))
    async with writing(database) as voices, voices.outgoing.transaction() as transaction:
        queued = RunId(new_id())
        transaction.emit(run.tenant, run.thread_id, queued, InferenceComplete("m", 1))
    await speak(database.pool, run, TextDelta("c"), TextDelta("d"))
    await end(database.pool, run)
    await age(database.pool, run)
    await keeper(database).run_once()
    said = await heard(database, thread_of(run))
    assert [event.get("delta") for event in said] == [None, "ab", None, "cd", None]
    assert [event["seq"] for event in said] == [1, 3, 4, 6, 7]


async def test_a_very_long_run_is_merged_page_by_page(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "DELTAS_PER_BATCH", 10)
    run = await old_run(database.pool, [TextDelta(str(n)) for n in range(95)])
    before = await heard(database, thread_of(run))
    assert (await keeper(database).run_once())["merge_deltas"] == 85
    assert texts(await heard(database, thread_of(run))) == texts(before)


async def test_what_is_old_of_one_tenant_changes_nothing_of_another_with_the_same_ids(
    database: Database,
) -> None:
    pool = database.pool
    ours = await old_run(pool, SAID)
    theirs = replace(ours, tenant=Tenant("globex"))
    assert await admit(pool, theirs, await worker(pool)) is not None
    await speak(pool, theirs, *SAID)
    before = await heard(database, thread_of(theirs))
    rows = await keeper(database, RetentionAges(events=60.0)).run_once()
    assert rows["merge_deltas"] == SAVED
    assert await heard(database, thread_of(theirs)) == before
    assert await check_cursor(pool, thread_of(theirs), 0, "/snapshot")
    await end(pool, theirs)
    # The same moment as well: whoever goes along must not take one for the other.
    await pool.execute("UPDATE runs SET finished_at = (SELECT min(finished_at) FROM runs)")
    assert (await keeper(database, RetentionAges(events=60.0)).run_once())["merge_deltas"] == SAVED


# --- many keepers, and ones that die --------------------------------------------------------------


async def test_of_four_at_once_each_row_is_seen_to_once_and_no_run_waits(
    database: Database,
) -> None:
    runs = [await old_run(database.pool, SAID) for _ in range(60)]
    at_work = await running(database.pool)
    keepers = [keeper(database, RetentionAges(events=60.0)) for _ in range(4)]

    async def go_on() -> int:
        said = 0
        while not all(one.done() for one in keeping):
            await speak(database.pool, at_work, TextDelta("still here"))
            said += 1
        return said

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        keeping = [tasks.create_task(one.run_once()) for one in keepers]
        said = await tasks.create_task(go_on())
    # Who finds another one at a duty leaves it alone; what is left is done the next time.
    done = [one.result() for one in keeping] + [await keepers[0].run_once()]
    events = len(SAID) + 2
    assert sum(rows["merge_deltas"] for rows in done) <= SAVED * len(runs)
    removed = sum(rows["merge_deltas"] + rows["prune_events"] for rows in done)
    assert removed == len(runs) * (events - 2), "the last word of each, and what its call came to"
    assert await count(database.pool, "events") == 2 * len(runs) + said + 1


async def test_whoever_dies_over_it_leaves_nothing_half_done(database: Database) -> None:
    runs = [await old_run(database.pool, SAID) for _ in range(30)]
    before = [await heard(database, thread_of(run)) for run in runs]

    async def die_over_the(number: int) -> None:
        async with database.transaction() as connection:
            found = await retention.next_finished(
                connection, "merge_deltas", older_than=60, limit=number
            )
            for run in found:
                await retention.merge_deltas(connection, run)
            await retention.save_cursor(connection, "merge_deltas", found[-1])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await die_over_the(15)
    assert [await heard(database, thread_of(run)) for run in runs] == before
    assert (await keeper(database).run_once())["merge_deltas"] == SAVED * len(runs)
    assert (await keeper(database).run_once())["merge_deltas"] == 0


async def test_a_keeper_that_is_stopped_goes_no_further(database: Database) -> None:
    await old_run(database.pool, SAID)
    stopped = keeper(database)
    stopped.stop()
    assert not any((await stopped.run_once()).values())
    async with asyncio.timeout(PATIENCE):
        await stopped.run()


# --- events ---------------------------------------------------------------------------------------


@pytest.fixture
async def pruned(database: Database) -> tuple[NewRun, NewRun]:
    """A thread with an old run whose events are gone, and a young one behind it."""
    old = await old_run(database.pool, SAID)
    young = await old_run(database.pool, SAID, thread_id=old.thread_id)
    await age(database.pool, young, -LONG)
    rows = await keeper(database, RetentionAges(events=86_400.0)).run_once()
    assert rows["prune_events"] > 0
    return old, young


async def test_what_is_kept_of_a_run_is_its_end_and_what_the_audit_tells(
    database: Database, pruned: tuple[NewRun, NewRun]
) -> None:
    old, young = pruned
    kept = [event["event_type"] for event in await heard(database, alone(old))]
    assert kept == ["tool_call_done", "run_finish"]
    assert len(await heard(database, alone(young))) == len(SAID) + 2


async def test_a_thread_is_followed_from_where_it_is_whole(
    database: Database, pruned: tuple[NewRun, NewRun]
) -> None:
    old, young = pruned
    last_of_old = len(SAID) + 2
    start = await first_cursor(database.pool, thread_of(old))
    assert start == last_of_old - 1
    assert await check_cursor(database.pool, thread_of(old), start, "/snapshot")
    for cursor in (0, 1, start - 1):
        facts = await refused(database, thread_of(old), cursor)
        assert facts["oldest_available"] == last_of_old
    for cursor in (0, last_of_old - 2, last_of_old, last_of_old + 3):
        assert await check_cursor(database.pool, alone(young), cursor, "/snapshot")


async def test_a_run_whose_events_are_gone_says_so_but_not_to_who_has_seen_its_end(
    database: Database, pruned: tuple[NewRun, NewRun]
) -> None:
    old, _ = pruned
    for cursor in (0, 5, len(SAID)):
        facts = await refused(database, alone(old), cursor)
        assert facts["oldest_available"] == 2 * (len(SAID) + 2) + 1
    assert not await check_cursor(database.pool, alone(old), len(SAID) + 2, "/snapshot")


async def test_numbers_go_on_behind_what_was_removed(
    database: Database, pruned: tuple[NewRun, NewRun]
) -> None:
    old, _ = pruned
    before = await last_cursor(database.pool, thread_of(old))
    await old_run(database.pool, [], thread_id=old.thread_id)
    said = await heard(database, thread_of(old), before)
    assert [event["seq"] for event in said] == [before + 1, before + 2]


# --- the rest -------------------------------------------------------------------------------------


async def test_notices_go_and_the_inbox_says_how_far_back_it_goes(database: Database) -> None:
    async with writing(database) as voices:
        for _ in range(3):
            run = await running(database.pool)
            await come_to_rest(voices, run, suspended(), ticket_of(run))
    found = await feed.read_after(database, TENANT, 0, TicketFilter(), 10)
    assert [notice.number for notice in found.notices] == [1, 2, 3]
    await database.pool.execute(
        "UPDATE ticket_feed SET at = at - $1::interval WHERE number < 3", LONG
    )
    assert (await keeper(database).run_once())["forget_notices"] == 2
    assert await beginning_of_inbox(database, TENANT, now=False) == 2
    assert await beginning_of_inbox(database, TENANT, now=True) == 3
    assert await check_inbox_cursor(database, TENANT, 2) == 2
    with pytest.raises(Gone) as gone:
        await check_inbox_cursor(database, TENANT, 1)
    assert gone.value.facts["oldest_available"] == 3
    assert await beginning_of_inbox(database, Tenant("globex"), now=False) == 0
    assert await count(database.pool, "tickets") == 3


async def test_notices_that_nobody_ever_read_go_as_well_and_a_cursor_knows(
    database: Database,
) -> None:
    async with writing(database) as voices:
        for _ in range(3):
            run = await running(database.pool)
            await come_to_rest(voices, run, suspended(), ticket_of(run))
    await database.pool.execute("UPDATE ticket_feed SET at = at - $1::interval", LONG)
    assert (await keeper(database).run_once())["forget_notices"] == 3
    assert await count(database.pool, "ticket_feed") == 0
    with pytest.raises(Gone):
        await check_inbox_cursor(database, TENANT, 0)
    assert await check_inbox_cursor(database, TENANT, 3) == 3


async def test_a_duty_that_breaks_stops_neither_the_others_nor_the_next_time(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await old_run(database.pool, SAID)
    await database.pool.execute(
        "UPDATE events SET body = 'spoilt' WHERE event_type = 'text_delta' AND seq = 5"
    )
    await database.pool.execute(
        "INSERT INTO pgq.pgqueuer_log (created, job_id, status, priority, entrypoint)"
        " VALUES (now() - $1::interval, 1, 'successful', 0, 'run')",
        LONG,
    )
    rows = await keeper(database).run_once()
    assert "merge_deltas" not in rows
    assert rows["forget_queue_log"] == 1
    assert "duty_broke" in capsys.readouterr().out
    await database.pool.execute("UPDATE events SET body = $1 WHERE seq = 5", '{"delta":"mended"}')
    assert (await keeper(database).run_once())["merge_deltas"] == SAVED
    assert "mended" in texts(await heard(database, thread_of(run)))["text_delta"]


async def test_the_dead_and_the_queues_memory_go_by_their_age(database: Database) -> None:
    pool = database.pool
    dead, alive = await worker(pool), await worker(pool)
    await die(pool, dead)
    await pool.execute(
        "UPDATE workers SET heartbeat_at = now() - $2::interval WHERE id = $1", dead, LONG
    )
    for days in (1, 40):
        await pool.execute(
            "INSERT INTO pgq.pgqueuer_log (created, job_id, status, priority, entrypoint)"
            " VALUES (now() - $1::interval, 1, 'successful', 0, 'run')",
            timedelta(days=days),
        )
        await pool.execute(
            "INSERT INTO pgq.pgqueuer_statistics (created, count, priority, status, entrypoint)"
            " VALUES (now() - $1::interval, 1, 0, 'successful', 'run')",
            timedelta(days=days),
        )
    rows = await keeper(database).run_once()
    assert (rows["forget_workers"], rows["forget_queue_log"]) == (1, 2)
    assert await count(pool, "pgq.pgqueuer_log") == 1
    assert await count(pool, "pgq.pgqueuer_statistics") == 1
    assert await pool.fetchval("SELECT id::text FROM workers") == alive


async def test_what_was_said_to_a_run_on_its_way_goes_with_its_age(database: Database) -> None:
    pool = database.pool
    old, young = await old_run(pool, []), await running(pool)
    for run in (old, young):
        for status, place in (("consumed", 1), ("pending", None), ("retracted", None)):
            await pool.execute(
                "INSERT INTO inputs (tenant, id, thread_id, run_id, position, message, status,"
                " consumed_seq) VALUES ($1, $2, $3, $4, 1, '{}', $5, $6)",
                run.tenant,
                new_id(),
                run.thread_id,
                run.id,
                status,
                place,
            )
    assert (await keeper(database).run_once())["forget_inputs"] == 2
    assert await count(pool, "inputs") == 4


async def test_tasks_stay_unless_somebody_wants_them_gone(database: Database) -> None:
    pool = database.pool
    run = await old_run(pool, [])
    await pool.execute(
        "INSERT INTO tasks (tenant, id, run_id, thread_id, agent_id, agent_version, call_id,"
        " tool_name, arguments, effect, idempotency_key, status, finished_at)"
        " VALUES ($1, 'task', $2, $3, 'a', 'v', 'c', 't', '{}', 'read', 'k', 'completed', now())",
        run.tenant,
        run.id,
        run.thread_id,
    )
    assert "forget_tasks" not in await keeper(database).run_once()
    assert (await keeper(database, RetentionAges(tasks=60.0)).run_once())["forget_tasks"] == 1


async def test_a_run_without_an_end_in_the_log_is_bounded_by_it(database: Database) -> None:
    run = await old_run(database.pool, [TextDelta("a"), TextDelta("b")])
    await database.pool.execute("DELETE FROM events WHERE event_type = 'run_finish'")
    async with database.transaction() as connection:
        [found] = await retention.next_finished(connection, "a duty", older_than=60, limit=5)
    assert isinstance(found, FinishedRun)
    assert (found.id, found.events_from, found.events_to) == (run.id, 1, 4)
    assert (await keeper(database).run_once())["merge_deltas"] == 1
