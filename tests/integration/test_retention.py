"""Retention: old events are merged or deleted, once across replicas, and readers never miss the gap."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from app.clock import new_id
from app.domain.errors import Gone
from app.domain.events.agent_events import AgentEvent
from app.domain.events.step_events import (
    InferenceComplete,
    ReasoningDelta,
    StepEnd,
    StepStart,
    TextDelta,
)
from app.domain.events.tool_call_events import ToolCallDelta, ToolCallDone, ToolCallStart
from app.domain.ids import RunId, Tenant
from app.domain.json_values import JsonObject
from app.domain.runs.runs import NewRun
from app.domain.structs import replace
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
from tests.support.emitters import TIMEOUT_SECONDS, writing
from tests.support.following import suspend_run
from tests.support.old_runs import LONG, age, emit_events, end, old_run
from tests.support.stored_runs import TENANT, admit, die, running, suspended, ticket_of, worker

pytestmark = pytest.mark.anyio

WORDS = ["It ", "is ", 'a "fine" ', "day.\n", "Ö"]
TEXT: list[AgentEvent] = [
    StepStart(new_id()),
    *map(ReasoningDelta, ("Well", "…")),
    *map(TextDelta, WORDS),
    ToolCallStart("one", "look"),
    *(ToolCallDelta("one", piece) for piece in ('{"at":', '"it"', "}")),
    ToolCallDone("one", new_id(), {"status": "done", "outcome": "succeeded"}),
    StepEnd(),
]
SAVED = 1 + 4 + 2
"""The rows that a merge of these events removes: each message becomes one delta."""
KEEPS_EVERYTHING = RetentionAges()


def retention_job(database: Database, ages: RetentionAges = KEEPS_EVERYTHING) -> Retention:
    return Retention(database, ages, interval=TIMEOUT_SECONDS)


def thread_scope(run: NewRun) -> StreamScope:
    return StreamScope(run.tenant, run.thread_id)


def run_scope(run: NewRun) -> StreamScope:
    return StreamScope(run.tenant, run.thread_id, run.id)


async def events_in(database: Database, scope: StreamScope, after: int = 0) -> list[JsonObject]:
    frames, _, _ = await read_page(database.pool, scope, after, 500)
    return [json.loads(frame.json) for frame in frames]


def texts(emitted: list[JsonObject]) -> dict[str, str]:
    """The joined deltas of each event type, as a client joins them."""
    whole: dict[str, str] = {}
    for event in emitted:
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
    run = await old_run(database.pool, TEXT)
    before = await events_in(database, thread_scope(run))
    rows = await retention_job(database).run_once()
    after = await events_in(database, thread_scope(run))
    assert rows["merge_deltas"] == SAVED == len(before) - len(after)
    assert texts(after) == texts(before)
    as_before = {event["seq"]: event for event in before}
    for event in after:
        was = as_before[event["seq"]]
        assert event == was or event["event_type"].endswith("_delta")
    assert await last_cursor(database.pool, thread_scope(run)) == len(before)
    stretches = [event["seq"] for event in after]
    first = await database.pool.fetch(
        "SELECT coalesce(from_seq, seq) AS at FROM events ORDER BY seq"
    )
    assert [row["at"] for row in first] == [1, *(seq + 1 for seq in stretches[:-1])]


async def test_a_cursor_inside_merged_events_is_referred_to_the_snapshot(
    database: Database,
) -> None:
    run = await old_run(database.pool, TEXT)
    before = await events_in(database, thread_scope(run))
    await retention_job(database).run_once()
    merged = {event["seq"] for event in before} - {
        event["seq"] for event in await events_in(database, thread_scope(run))
    }
    assert len(merged) == SAVED
    for event in before:
        for scope in (thread_scope(run), run_scope(run)):
            if event["seq"] in merged:
                facts = await refused(database, scope, event["seq"])
                assert facts["oldest_available"] > event["seq"]
                assert facts["last_event_id"] == len(before)
            else:
                seen = [one for one in before if one["seq"] <= event["seq"]]
                assert await check_cursor(database.pool, scope, event["seq"], "/snapshot") == (
                    event is not before[-1]
                )
                later = await events_in(database, scope, event["seq"])
                assert texts([*seen, *later]) == texts(before)


async def test_a_reader_whose_events_are_merged_meanwhile_is_disconnected(
    database: Database,
) -> None:
    run = await old_run(database.pool, [TextDelta("x")] * 700)
    follower = follow(database.pool, Hub(), thread_scope(run), after=0, heartbeat=TIMEOUT_SECONDS)
    frames = follower.frames()
    first = await anext(frames)
    assert first is not None
    assert first[-1].seq == 500
    await retention_job(database).run_once()
    with pytest.raises(Gone):
        await anext(frames)
    await frames.aclose()
    follower.close()


async def test_deltas_of_recent_or_unfinished_runs_are_not_merged(database: Database) -> None:
    young, at_work = await running(database.pool), await running(database.pool)
    for run in (young, at_work):
        await emit_events(database.pool, run, *TEXT)
    await end(database.pool, young)
    async with writing(database) as emitters:
        waiting = await running(database.pool)
        await emit_events(database.pool, waiting, *TEXT)
        await suspend_run(emitters, waiting, suspended(), ticket_of(waiting))
    assert (await retention_job(database).run_once())["merge_deltas"] == 0
    await age(database.pool, young, timedelta(hours=2))
    assert (await retention_job(database).run_once())["merge_deltas"] == SAVED


async def test_events_of_other_runs_between_merged_deltas_keep_their_position(
    database: Database,
) -> None:
    run = await running(database.pool)
    await emit_events(database.pool, run, TextDelta("a"), TextDelta("b"))
    async with writing(database) as emitters, emitters.outgoing.transaction() as transaction:
        queued = RunId(new_id())
        transaction.emit(run.tenant, run.thread_id, queued, InferenceComplete("m", 1))
    await emit_events(database.pool, run, TextDelta("c"), TextDelta("d"))
    await end(database.pool, run)
    await age(database.pool, run)
    await retention_job(database).run_once()
    emitted = await events_in(database, thread_scope(run))
    assert [event.get("delta") for event in emitted] == [None, "ab", None, "cd", None]
    assert [event["seq"] for event in emitted] == [1, 3, 4, 6, 7]


async def test_a_very_long_run_is_merged_page_by_page(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "DELTAS_PER_BATCH", 10)
    run = await old_run(database.pool, [TextDelta(str(n)) for n in range(95)])
    before = await events_in(database, thread_scope(run))
    assert (await retention_job(database).run_once())["merge_deltas"] == 85
    assert texts(await events_in(database, thread_scope(run))) == texts(before)


async def test_merging_for_one_tenant_does_not_change_another_with_the_same_ids(
    database: Database,
) -> None:
    pool = database.pool
    ours = await old_run(pool, TEXT)
    theirs = replace(ours, tenant=Tenant("globex"))
    assert await admit(pool, theirs, await worker(pool)) is not None
    await emit_events(pool, theirs, *TEXT)
    before = await events_in(database, thread_scope(theirs))
    rows = await retention_job(database, RetentionAges(events=60.0)).run_once()
    assert rows["merge_deltas"] == SAVED
    assert await events_in(database, thread_scope(theirs)) == before
    assert await check_cursor(pool, thread_scope(theirs), 0, "/snapshot")
    await end(pool, theirs)
    # The end times are equal too, so the cursor must distinguish the tenants.
    await pool.execute("UPDATE runs SET finished_at = (SELECT min(finished_at) FROM runs)")
    assert (await retention_job(database, RetentionAges(events=60.0)).run_once())[
        "merge_deltas"
    ] == SAVED


# --- concurrent and dying jobs --------------------------------------------------------------------


async def test_four_concurrent_jobs_process_each_row_once_and_block_no_run(
    database: Database,
) -> None:
    runs = [await old_run(database.pool, TEXT) for _ in range(60)]
    at_work = await running(database.pool)
    retention_jobs = [retention_job(database, RetentionAges(events=60.0)) for _ in range(4)]

    async def emit_until_done() -> int:
        emitted = 0
        while not all(one.done() for one in running_jobs):
            await emit_events(database.pool, at_work, TextDelta("still here"))
            emitted += 1
        return emitted

    async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as tasks:
        running_jobs = [tasks.create_task(one.run_once()) for one in retention_jobs]
        emitted = await tasks.create_task(emit_until_done())
    # A job that another replica holds is skipped; the remaining rows are processed next time.
    done = [one.result() for one in running_jobs] + [await retention_jobs[0].run_once()]
    events = len(TEXT) + 2
    assert sum(rows["merge_deltas"] for rows in done) <= SAVED * len(runs)
    removed = sum(rows["merge_deltas"] + rows["prune_events"] for rows in done)
    assert removed == len(runs) * (events - 2), "one delta and one call event remain of each run"
    assert await count(database.pool, "events") == 2 * len(runs) + emitted + 1


async def test_a_job_that_dies_leaves_no_partial_changes(database: Database) -> None:
    runs = [await old_run(database.pool, TEXT) for _ in range(30)]
    before = [await events_in(database, thread_scope(run)) for run in runs]

    async def merge_and_fail(number: int) -> None:
        async with database.transaction() as connection:
            found = await retention.next_finished(
                connection, "merge_deltas", older_than=60, limit=number
            )
            for run in found:
                await retention.merge_deltas(connection, run)
            await retention.save_cursor(connection, "merge_deltas", found[-1])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await merge_and_fail(15)
    assert [await events_in(database, thread_scope(run)) for run in runs] == before
    assert (await retention_job(database).run_once())["merge_deltas"] == SAVED * len(runs)
    assert (await retention_job(database).run_once())["merge_deltas"] == 0


async def test_a_stopped_job_does_no_further_work(database: Database) -> None:
    await old_run(database.pool, TEXT)
    stopped = retention_job(database)
    stopped.stop()
    assert not any((await stopped.run_once()).values())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await stopped.run()


# --- events ---------------------------------------------------------------------------------------


@pytest.fixture
async def pruned(database: Database) -> tuple[NewRun, NewRun]:
    """A thread with an old run whose events are deleted, and a recent run after it."""
    old = await old_run(database.pool, TEXT)
    young = await old_run(database.pool, TEXT, thread_id=old.thread_id)
    await age(database.pool, young, -LONG)
    rows = await retention_job(database, RetentionAges(events=86_400.0)).run_once()
    assert rows["prune_events"] > 0
    return old, young


async def test_pruning_keeps_the_end_of_a_run_and_its_audited_events(
    database: Database, pruned: tuple[NewRun, NewRun]
) -> None:
    old, young = pruned
    stored_one = [event["event_type"] for event in await events_in(database, run_scope(old))]
    assert stored_one == ["tool_call_done", "run_finish"]
    assert len(await events_in(database, run_scope(young))) == len(TEXT) + 2


async def test_a_thread_is_followed_from_the_first_cursor_without_a_gap(
    database: Database, pruned: tuple[NewRun, NewRun]
) -> None:
    old, young = pruned
    last_of_old = len(TEXT) + 2
    start = await first_cursor(database.pool, thread_scope(old))
    assert start == last_of_old - 1
    assert await check_cursor(database.pool, thread_scope(old), start, "/snapshot")
    for cursor in (0, 1, start - 1):
        facts = await refused(database, thread_scope(old), cursor)
        assert facts["oldest_available"] == last_of_old
    for cursor in (0, last_of_old - 2, last_of_old, last_of_old + 3):
        assert await check_cursor(database.pool, run_scope(young), cursor, "/snapshot")


async def test_a_pruned_run_refuses_a_cursor_unless_it_is_at_the_end_of_the_run(
    database: Database, pruned: tuple[NewRun, NewRun]
) -> None:
    old, _ = pruned
    for cursor in (0, 5, len(TEXT)):
        facts = await refused(database, run_scope(old), cursor)
        assert facts["oldest_available"] == 2 * (len(TEXT) + 2) + 1
    assert not await check_cursor(database.pool, run_scope(old), len(TEXT) + 2, "/snapshot")


async def test_event_numbers_continue_after_pruned_events(
    database: Database, pruned: tuple[NewRun, NewRun]
) -> None:
    old, _ = pruned
    before = await last_cursor(database.pool, thread_scope(old))
    await old_run(database.pool, [], thread_id=old.thread_id)
    emitted = await events_in(database, thread_scope(old), before)
    assert [event["seq"] for event in emitted] == [before + 1, before + 2]


# --- other jobs -----------------------------------------------------------------------------------


async def test_old_notices_are_deleted_and_the_feed_names_its_oldest_cursor(
    database: Database,
) -> None:
    async with writing(database) as emitters:
        for _ in range(3):
            run = await running(database.pool)
            await suspend_run(emitters, run, suspended(), ticket_of(run))
    found = await feed.read_after(database, TENANT, 0, TicketFilter(), 10)
    assert [notice.number for notice in found.notices] == [1, 2, 3]
    await database.pool.execute(
        "UPDATE ticket_feed SET at = at - $1::interval WHERE number < 3", LONG
    )
    assert (await retention_job(database).run_once())["delete_notices"] == 2
    assert await beginning_of_inbox(database, TENANT, now=False) == 2
    assert await beginning_of_inbox(database, TENANT, now=True) == 3
    assert await check_inbox_cursor(database, TENANT, 2) == 2
    with pytest.raises(Gone) as gone:
        await check_inbox_cursor(database, TENANT, 1)
    assert gone.value.facts["oldest_available"] == 3
    assert await beginning_of_inbox(database, Tenant("globex"), now=False) == 0
    assert await count(database.pool, "tickets") == 3


async def test_unread_old_notices_are_deleted_too_and_stale_cursors_are_refused(
    database: Database,
) -> None:
    async with writing(database) as emitters:
        for _ in range(3):
            run = await running(database.pool)
            await suspend_run(emitters, run, suspended(), ticket_of(run))
    await database.pool.execute("UPDATE ticket_feed SET at = at - $1::interval", LONG)
    assert (await retention_job(database).run_once())["delete_notices"] == 3
    assert await count(database.pool, "ticket_feed") == 0
    with pytest.raises(Gone):
        await check_inbox_cursor(database, TENANT, 0)
    assert await check_inbox_cursor(database, TENANT, 3) == 3


async def test_a_failing_job_stops_neither_the_others_nor_its_next_run(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await old_run(database.pool, TEXT)
    await database.pool.execute(
        "UPDATE events SET body = 'spoilt' WHERE event_type = 'text_delta' AND seq = 5"
    )
    await database.pool.execute(
        "INSERT INTO pgq.pgqueuer_log (created, job_id, status, priority, entrypoint)"
        " VALUES (now() - $1::interval, 1, 'successful', 0, 'run')",
        LONG,
    )
    rows = await retention_job(database).run_once()
    assert "merge_deltas" not in rows
    assert rows["delete_queue_log"] == 1
    assert "retention_job_failed" in capsys.readouterr().out
    await database.pool.execute("UPDATE events SET body = $1 WHERE seq = 5", '{"delta":"mended"}')
    assert (await retention_job(database).run_once())["merge_deltas"] == SAVED
    assert "mended" in texts(await events_in(database, thread_scope(run)))["text_delta"]


async def test_old_rows_of_dead_workers_and_of_the_queue_log_are_deleted(
    database: Database,
) -> None:
    pool = database.pool
    dead_worker, living_worker = await worker(pool), await worker(pool)
    await die(pool, dead_worker)
    await pool.execute(
        "UPDATE workers SET heartbeat_at = now() - $2::interval WHERE id = $1", dead_worker, LONG
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
    rows = await retention_job(database).run_once()
    assert (rows["delete_workers"], rows["delete_queue_log"]) == (1, 2)
    assert await count(pool, "pgq.pgqueuer_log") == 1
    assert await count(pool, "pgq.pgqueuer_statistics") == 1
    assert await pool.fetchval("SELECT id::text FROM workers") == living_worker


async def test_old_inputs_of_finished_runs_are_deleted(database: Database) -> None:
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
    assert (await retention_job(database).run_once())["delete_inputs"] == 2
    assert await count(pool, "inputs") == 4


async def test_tasks_are_deleted_only_if_their_age_is_configured(database: Database) -> None:
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
    assert "delete_tasks" not in await retention_job(database).run_once()
    assert (await retention_job(database, RetentionAges(tasks=60.0)).run_once())[
        "delete_tasks"
    ] == 1


async def test_memories_are_deleted_only_if_their_age_is_configured(database: Database) -> None:
    pool = database.pool
    for key, days in (("old", 3), ("changed", 1)):
        await pool.execute(
            "INSERT INTO memories (tenant, id, scope, subject, key, value, size, words, saved_by,"
            " created_at, updated_at) VALUES ('acme', $1, 'subject', 'ann', $2, '1', 1, '', 'ann',"
            " now() - interval '9 days', now() - make_interval(days => $3))",
            new_id(),
            key,
            days,
        )
    assert "delete_memories" not in await retention_job(database).run_once()
    ages = RetentionAges(memories=2 * 86_400.0)
    assert (await retention_job(database, ages).run_once())["delete_memories"] == 1
    assert await pool.fetchval("SELECT key FROM memories") == "changed"


async def test_the_event_range_of_a_run_without_a_finish_event_ends_at_its_last_event(
    database: Database,
) -> None:
    run = await old_run(database.pool, [TextDelta("a"), TextDelta("b")])
    await database.pool.execute("DELETE FROM events WHERE event_type = 'run_finish'")
    async with database.transaction() as connection:
        [found] = await retention.next_finished(connection, "a job", older_than=60, limit=5)
    assert isinstance(found, FinishedRun)
    assert (found.id, found.events_from, found.events_to) == (run.id, 1, 4)
    assert (await retention_job(database).run_once())["merge_deltas"] == 1
