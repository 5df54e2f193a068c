"""Failing follow-ups are retried a few times, with growing pauses, and then given up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import pytest

from app.agents.catalog import Catalog
from app.commands.followups import child_runs as carried_out
from app.commands.followups import dispatch
from app.commands.followups.background_tasks import list_tasks
from app.commands.followups.dispatch import run_followup
from app.commands.threads.threads import ChildThreads, delete_thread
from app.domain.agents.specs import Delegation
from app.domain.children.background_tasks import TaskFilter, TaskStatus
from app.domain.children.child_runs import ChildWork, child_request
from app.domain.children.followups import (
    MAX_TRIES,
    AbortRemote,
    ChildFollowup,
    Followup,
    FollowupKind,
    JobInfo,
    RetryAfter,
)
from app.domain.json_values import JsonObject
from app.domain.runs.runs import RunStatus
from app.domain.slices import PageRequest
from app.llm.scripted.model import Gate, Script, ScriptedTurn, turn
from app.queries.explain import explain
from app.queries.explain_reasons import ReasonCode
from app.storage.children import lost_followups
from app.storage.queue import failed_followups
from tests.support.conditions import eventually
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import ANN, Replica, Run, of_type, open_replica, texts_of
from tests.support.run_trees import (
    ScriptedAgent,
    agents_with_delegates,
    by_transcript,
    cautious,
    children_of,
    family_of,
    overdue,
    work_for,
)

pytestmark = pytest.mark.anyio

BLUE = ScriptedAgent([turn("Blue.")])


def boss(*turns: ScriptedTurn, **more: Any) -> ScriptedAgent:
    script = by_transcript(turn(work_for("scout", id="c1")), *turns)
    return ScriptedAgent(script, delegates=["scout"], more=more)


def in_the_background(*turns: ScriptedTurn) -> ScriptedAgent:
    return boss(*turns, background=["agent_run_scout"])


@asynccontextmanager
async def without_followups(url: str, catalog: Catalog, script: Script) -> AsyncIterator[Replica]:
    """A replica that executes its own runs and takes no follow-ups from the queue."""
    async with open_replica(url, catalog, script) as replica:
        await replica.take_nothing_new()
        yield replica


@pytest.fixture
def plant_bug(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a function that follow-ups call raise an error."""

    def broken(*_: object, **__: object) -> NoReturn:
        raise KeyError("planted")

    def plant(name: str) -> None:
        monkeypatch.setattr(carried_out, name, broken)

    return plant


async def until_given_up(replica: Replica, followup: Followup) -> None:
    """Executes the first try and the last one."""
    assert await run_followup(replica.ctx, followup) is not None
    await replica.database.pool.execute(
        "UPDATE failed_followups SET tries = $1, next_at = now()", MAX_TRIES - 1
    )
    assert await run_followup(replica.ctx, followup) is None


async def all_tries(replica: Replica, followup: Followup) -> list[float]:
    """Executes all tries without the pauses between them, and returns these pauses."""
    pauses: list[float] = []
    while (later := await run_followup(replica.ctx, followup)) is not None:
        again = await run_followup(replica.ctx, followup)
        assert again is not None
        assert again.seconds <= later.seconds, "a try before its time is refused"
        pauses.append(later.seconds)
        await replica.database.pool.execute("UPDATE failed_followups SET next_at = now()")
    return pauses


async def events_about(run: Run) -> list[tuple[ReasonCode, str]]:
    found = await explain(run.replica.ctx, ANN, run.id)
    return [
        (reason.code, reason.text)
        for reason in found.reasons
        if reason.code in (ReasonCode.FOLLOWUP_FAILING, ReasonCode.FOLLOWUP_GIVEN_UP)
    ]


async def only_followup(replica: Replica, kind: FollowupKind) -> ChildFollowup:
    [found] = await overdue(replica)
    assert found.kind is kind
    return found


# --- what giving up means -------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [boss, in_the_background])
async def test_a_child_that_cannot_be_started_is_an_error_for_its_parent(
    database_url: str, plant_bug: Callable[[str], None], lead: Any
) -> None:
    turns = [turn("Then not.")] if lead is boss else [turn("Waiting."), turn("Then not.")]
    catalog, script = agents_with_delegates(boss=lead(*turns), scout=BLUE)
    plant_bug("child_request")
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        start = await only_followup(replica, FollowupKind.START)
        assert await run_followup(replica.ctx, start) == RetryAfter(1.0)
        [(code, text)] = await events_about(run)
        assert (code, "failed once" in text) == (ReasonCode.FOLLOWUP_FAILING, True)
        assert await overdue(replica) == [], "the job is in the queue"
        await replica.database.pool.execute("UPDATE failed_followups SET next_at = now()")
        if lead is boss:
            assert await all_tries(replica, start) == [2, 4, 8, 16, 32, 60, 60, 60]
        else:
            await until_given_up(replica, start)
        [(code, text)] = await events_about(run)
        assert code is ReasonCode.FOLLOWUP_GIVEN_UP
        assert f"{MAX_TRIES} times" in text
        assert start.child_run_id in text
        assert await overdue(replica) == []
        assert await children_of(run) == []
    async with open_replica(database_url, catalog, script) as other:
        run = other.same(run)
        assert (await run.ended())[-1]["termination"] == {"type": "natural_end"}
        messages_read = [
            text for role, text in texts_of(await run.log()) if role in ("tool", "user")
        ]
        assert "it could not be started" in messages_read[-1]
    assert await broken_invariants(database_url) == {}


@pytest.mark.parametrize("lead", [boss, in_the_background])
async def test_a_childs_end_that_cannot_be_reported_is_an_error_for_its_parent(
    database_url: str, plant_bug: Callable[[str], None], lead: Any
) -> None:
    turns = [turn("A pity.")] if lead is boss else [turn("Waiting."), turn("A pity.")]
    catalog, script = agents_with_delegates(boss=lead(*turns), scout=BLUE)
    plant_bug("report_of")
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()

        async def is_failing() -> list[tuple[ReasonCode, str]]:
            return await events_about(run)

        await eventually(is_failing)
        await replica.take_nothing_new()
        [child] = await children_of(run)
        report = ChildFollowup(
            kind=FollowupKind.REPORT_TO_PARENT,
            tenant=ANN.tenant,
            parent_run_id=run.id,
            child_run_id=child.id,
        )
        await until_given_up(replica, report)
        [(code, text)] = await events_about(run)
        assert code is ReasonCode.FOLLOWUP_GIVEN_UP
        assert f"GET /v1/runs/{child.id} shows its result" in text
    async with open_replica(database_url, catalog, script) as other:
        run = other.same(run)
        await run.ended()
        messages_read = [
            text for role, text in texts_of(await run.log()) if role in ("tool", "user")
        ]
        assert "its result can't be reported" in messages_read[-1]


async def test_the_end_of_a_child_whose_row_cannot_be_read_is_an_error_for_its_parent(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(turn("A pity.")), scout=ScriptedAgent([turn(gate, "Blue.")])
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        await replica.take_nothing_new()
        gate.open.set()
        [child] = await children_of(run)
        await child.ended()
        await replica.database.pool.execute(
            """UPDATE runs SET termination = '{"type": "stopped"}' WHERE id = $1""", child.id
        )
        await until_given_up(replica, await only_followup(replica, FollowupKind.REPORT_TO_PARENT))
        [(code, text)] = await events_about(run)
        assert (code, child.id in text) == (ReasonCode.FOLLOWUP_GIVEN_UP, True)
        assert (await explain(replica.ctx, ANN, run.id)).descendants == ()
    async with open_replica(database_url, catalog, script) as other:
        run = other.same(run)
        await run.ended()
        assert "its result can't be reported" in texts_of(await run.log())[-2][1]


async def test_a_failed_progress_report_does_not_prevent_the_report_of_the_end(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(turn("Blue, then.")), scout=ScriptedAgent([turn(gate, "Blue.")])
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        [child] = await children_of(run)
        report = ChildFollowup(
            kind=FollowupKind.REPORT_TO_PARENT,
            tenant=ANN.tenant,
            parent_run_id=run.id,
            child_run_id=child.id,
        )
        with monkeypatch.context() as patch:
            patch.setattr(carried_out, "child_progress", None)
            await until_given_up(replica, report)
        assert await events_about(run) == [], "no follow-up has failed"
        gate.open.set()
        await run.ended()
        assert "Blue" in texts_of(await run.log())[-2][1]


async def test_a_child_that_cannot_be_cancelled_gets_a_cancel_request_for_its_worker(
    database_url: str, plant_bug: Callable[[str], None]
) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(boss=boss(), scout=ScriptedAgent([turn(gate, "Blue.")]))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        await replica.take_nothing_new()
        plant_bug("cancel")
        assert (await run.cancel()).is_done
        await until_given_up(replica, await only_followup(replica, FollowupKind.CANCEL))
        [child] = await children_of(run)
        [(code, text)] = await events_about(run)
        assert code is ReasonCode.FOLLOWUP_GIVEN_UP
        assert f"POST /v1/runs/{child.id}/cancel" in text
        assert (await child.ended())[-1]["termination"]["type"] == "cancelled"


async def test_a_waiting_child_that_cannot_be_cancelled_is_ended_by_a_worker(
    database_url: str, plant_bug: Callable[[str], None]
) -> None:
    probe = Probe()
    catalog, script = agents_with_delegates(boss=boss(), scout=cautious(probe))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        [child] = await family_of(run, 1)
        await child.finished()
        await replica.take_nothing_new()
        plant_bug("cancel")
        assert (await run.cancel()).is_done
        await until_given_up(replica, await only_followup(replica, FollowupKind.CANCEL))
        assert (await child.now()).status is RunStatus.WAITING
    async with open_replica(database_url, catalog, script) as other:
        emitted = await other.same(child).ended()
    assert emitted[-1]["termination"]["type"] == "cancelled"
    assert len(of_type(emitted, "cancel_requested")) == 1
    assert probe.handed == []
    assert await broken_invariants(database_url) == {}


async def test_messages_that_cannot_be_forwarded_stay_unread(database_url: str) -> None:
    gate = Gate()
    lead = in_the_background(turn("Waiting."), turn("Blue, then."))
    catalog, script = agents_with_delegates(boss=lead, scout=ScriptedAgent([turn(gate, "Blue.")]))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        await gate.reached.wait()
        await replica.take_nothing_new()
        await replica.database.pool.execute("""UPDATE tasks SET inbox = '[{"key": "a key"}]'""")
        await until_given_up(replica, await only_followup(replica, FollowupKind.FORWARD_MESSAGES))
        [(code, text)] = await events_about(run)
        assert (code, "unread" in text) == (ReasonCode.FOLLOWUP_GIVEN_UP, True)
        gate.open.set()
        [child] = await children_of(run)
        await child.ended()
        await run_followup(replica.ctx, await only_followup(replica, FollowupKind.REPORT_TO_PARENT))
        [task] = await list_tasks(replica.ctx, ANN, run.id, TaskFilter(), PageRequest())
        assert (task.status, task.unread_messages) == (TaskStatus.SUCCEEDED, 1)


async def test_a_child_that_cannot_be_deleted_stays_and_can_be_deleted_over_the_api(
    database_url: str, plant_bug: Callable[[str], None]
) -> None:
    lead = boss(turn("Blue, then."), delegation=Delegation(keep=False))
    catalog, script = agents_with_delegates(boss=lead, scout=BLUE)
    plant_bug("delete_thread")
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.ended()
        await replica.take_nothing_new()
        [child] = await children_of(run)
        forget = ChildFollowup(
            kind=FollowupKind.DELETE,
            tenant=ANN.tenant,
            parent_run_id=run.id,
            child_run_id=child.id,
        )
        await until_given_up(replica, forget)
        [(code, text)] = await events_about(run)
        assert (code, "can be deleted" in text) == (ReasonCode.FOLLOWUP_GIVEN_UP, True)
        assert await overdue(replica) == []
        await delete_thread(replica.ctx, ANN, child.thread_id, ChildThreads.CASCADE)
        assert await children_of(run) == []


async def test_an_abort_that_the_remote_does_not_accept_is_given_up(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, script = agents_with_delegates(boss=BLUE)
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.ended()
        monkeypatch.setattr(dispatch, "abort_remote", None)
        await until_given_up(replica, AbortRemote(tenant=ANN.tenant, run_id=run.id))
        [(code, text)] = await events_about(run)
        assert (code, "remote agent" in text) == (ReasonCode.FOLLOWUP_GIVEN_UP, True)


# --- around it ------------------------------------------------------------------------------------


async def test_a_followup_that_succeeds_after_failures_leaves_no_failure_row(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, script = agents_with_delegates(boss=boss(turn("Blue, then.")), scout=BLUE)
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        start = await only_followup(replica, FollowupKind.START)
        with monkeypatch.context() as patch:
            patch.setattr(carried_out, "child_request", None)
            assert await run_followup(replica.ctx, start) == RetryAfter(1.0)
        await replica.database.pool.execute("UPDATE failed_followups SET next_at = now()")
        assert await run_followup(replica.ctx, start) is None
        assert await events_about(run) == []
        [child] = await children_of(run)
        assert (await child.now()).status is RunStatus.CREATED


async def test_a_followup_that_crashes_its_processes_is_given_up(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is late by then, and each try is counted before it begins."""
    catalog, script = agents_with_delegates(boss=boss(turn("Then not.")), scout=BLUE)
    late, crashes_count = JobInfo(is_late=True), 0

    def crashes(*_: object) -> NoReturn:
        nonlocal crashes_count
        crashes_count += 1
        raise asyncio.CancelledError

    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        start = await only_followup(replica, FollowupKind.START)
        monkeypatch.setattr(carried_out, "child_request", crashes)
        for tries in (MAX_TRIES - 1, MAX_TRIES):
            with pytest.raises(asyncio.CancelledError):
                await run_followup(replica.ctx, start, late)
            assert await run_followup(replica.ctx, start, late) is not None, (
                "no try before its time"
            )
            await replica.database.pool.execute(
                "UPDATE failed_followups SET tries = $1, next_at = now()", tries
            )
        assert await run_followup(replica.ctx, start, late) is None
        [(code, _)] = await events_about(run)
        assert (code, crashes_count) == (ReasonCode.FOLLOWUP_GIVEN_UP, 2)


async def test_a_late_followup_that_succeeds_leaves_no_failure_row(database_url: str) -> None:
    catalog, script = agents_with_delegates(boss=boss(turn("Blue, then.")), scout=BLUE)
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        start = await only_followup(replica, FollowupKind.START)
        assert await run_followup(replica.ctx, start, JobInfo(is_late=True)) is None
        assert await events_about(run) == []
        assert len(await children_of(run)) == 1


async def test_a_followup_whose_giving_up_fails_is_tried_again(
    database_url: str, plant_bug: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, script = agents_with_delegates(boss=boss(turn("Then not.")), scout=BLUE)
    plant_bug("child_request")
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        start = await only_followup(replica, FollowupKind.START)
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "give_up_followup", None)
            for tries in (MAX_TRIES - 1, MAX_TRIES, MAX_TRIES + 1):
                assert await run_followup(replica.ctx, start) is not None
                await replica.database.pool.execute(
                    "UPDATE failed_followups SET tries = $1, next_at = now()", tries
                )
        assert (await run.now()).status is RunStatus.WAITING
        assert await run_followup(replica.ctx, start) is None
        [(code, _)] = await events_about(run)
        assert code is ReasonCode.FOLLOWUP_GIVEN_UP


async def test_a_failing_followup_does_not_block_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_for_some(work: ChildWork, of_parent: JsonObject) -> dict[str, Any]:
        if work.run_id in broken:
            raise KeyError("planted")
        return child_request(work, of_parent)

    broken: set[str] = set()
    monkeypatch.setattr(carried_out, "child_request", fails_for_some)
    catalog, script = agents_with_delegates(boss=boss(turn("Blue, then.")), scout=BLUE)
    async with without_followups(database_url, catalog, script) as replica:
        failing_run, healthy_run = await replica.start(), await replica.start()
        for run in (failing_run, healthy_run):
            await run.finished()
        for found in await overdue(replica):
            if found.parent_run_id == failing_run.id:
                broken.add(found.child_run_id)
                assert await run_followup(replica.ctx, found) == RetryAfter(1.0)
        async with replica.database.reading() as connection:
            [left] = await lost_followups.of_children(connection, grace=0, limit=1)
        assert left.parent_run_id == healthy_run.id
    async with open_replica(database_url, catalog, script) as other:
        await other.same(healthy_run).ended()

        async def tried_again() -> bool:
            async with other.database.reading() as connection:
                [failed] = await failed_followups.of_run(connection, ANN.tenant, failing_run.id)
            return failed.tries > 1

        await eventually(tried_again)
        broken.clear()
        await other.same(failing_run).ended()
        assert await events_about(other.same(failing_run)) == []


async def test_a_ticket_with_an_invalid_child_id_does_not_hide_other_lost_followups(
    database_url: str,
) -> None:
    catalog, script = agents_with_delegates(boss=boss(turn("Blue, then.")), scout=BLUE)
    async with without_followups(database_url, catalog, script) as replica:
        failing_run, healthy_run = await replica.start(), await replica.start()
        for run in (failing_run, healthy_run):
            await run.finished()
        await replica.database.pool.execute(
            """UPDATE tickets SET evidence = evidence || '{"run_id": "-"}' WHERE run_id = $1""",
            failing_run.id,
        )
        assert (await only_followup(replica, FollowupKind.START)).parent_run_id == healthy_run.id
