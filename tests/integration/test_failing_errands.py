"""Errands that fail are tried a few times, with growing pauses; then nobody waits for them any longer."""

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
from app.domain.children.background_tasks import TaskStatus
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
from app.llm.scripted.model import Gate, Script, ScriptedTurn, turn
from app.queries.explain import ReasonCode, explain
from app.storage.children import lost_followups
from app.storage.queue import failed_followups
from tests.support.conditions import eventually
from tests.support.families import (
    Member,
    by_transcript,
    cautious,
    children_of,
    family,
    family_of,
    overdue,
    work_for,
)
from tests.support.house import ANN, Replica, Run, of_type, replica, texts_of
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

BLUE = Member([turn("Blue.")])


def boss(*turns: ScriptedTurn, **more: Any) -> Member:
    script = by_transcript(turn(work_for("scout", id="c1")), *turns)
    return Member(script, delegates=["scout"], more=more)


def in_the_background(*turns: ScriptedTurn) -> Member:
    return boss(*turns, background=["agent_run_scout"])


@asynccontextmanager
async def without_errands(url: str, catalog: Catalog, script: Script) -> AsyncIterator[Replica]:
    """A replica that executes what it has started, and whose errands stay undone."""
    async with replica(url, catalog, script) as house:
        await house.take_nothing_new()
        yield house


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Plants a bug in what errands do."""

    def broken(*_: object, **__: object) -> NoReturn:
        raise KeyError("planted")

    def plant(name: str) -> None:
        monkeypatch.setattr(carried_out, name, broken)

    return plant


async def until_given_up(house: Replica, followup: Followup) -> None:
    """The first try, and the last one."""
    assert await run_followup(house.ctx, followup) is not None
    await house.database.pool.execute(
        "UPDATE failed_errands SET tries = $1, next_at = now()", MAX_TRIES - 1
    )
    assert await run_followup(house.ctx, followup) is None


async def all_tries(house: Replica, followup: Followup) -> list[float]:
    """Try as often as the queue would, without the pauses between, which are returned."""
    pauses: list[float] = []
    while (later := await run_followup(house.ctx, followup)) is not None:
        again = await run_followup(house.ctx, followup)
        assert again is not None
        assert again.seconds <= later.seconds, "before its time it isn't tried"
        pauses.append(later.seconds)
        await house.database.pool.execute("UPDATE failed_errands SET next_at = now()")
    return pauses


async def said_of(run: Run) -> list[tuple[ReasonCode, str]]:
    found = await explain(run.replica.ctx, ANN, run.id)
    return [
        (reason.code, reason.text)
        for reason in found.reasons
        if reason.code in (ReasonCode.ERRAND_FAILING, ReasonCode.ERRAND_GIVEN_UP)
    ]


async def the_only_one(house: Replica, kind: FollowupKind) -> ChildFollowup:
    [found] = await overdue(house)
    assert found.kind is kind
    return found


# --- what giving up means -------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [boss, in_the_background])
async def test_a_child_that_cannot_be_started_is_an_error_to_its_parent(
    database_url: str, planted: Callable[[str], None], lead: Any
) -> None:
    turns = [turn("Then not.")] if lead is boss else [turn("Waiting."), turn("Then not.")]
    catalog, script = family(boss=lead(*turns), scout=BLUE)
    planted("child_request")
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        start = await the_only_one(house, FollowupKind.START)
        assert await run_followup(house.ctx, start) == RetryAfter(1.0)
        [(code, text)] = await said_of(run)
        assert (code, "failed once" in text) == (ReasonCode.ERRAND_FAILING, True)
        assert await overdue(house) == [], "it is in the queue's hands"
        await house.database.pool.execute("UPDATE failed_errands SET next_at = now()")
        if lead is boss:
            assert await all_tries(house, start) == [2, 4, 8, 16, 32, 60, 60, 60]
        else:
            await until_given_up(house, start)
        [(code, text)] = await said_of(run)
        assert code is ReasonCode.ERRAND_GIVEN_UP
        assert f"{MAX_TRIES} times" in text
        assert start.child_run_id in text
        assert await overdue(house) == []
        assert await children_of(run) == []
    async with replica(database_url, catalog, script) as other:
        run = other.same(run)
        assert (await run.ended())[-1]["termination"] == {"type": "natural_end"}
        told = [text for role, text in texts_of(await run.log()) if role in ("tool", "user")]
        assert "it could not be started" in told[-1]
    assert await broken_invariants(database_url) == {}


@pytest.mark.parametrize("lead", [boss, in_the_background])
async def test_an_end_that_cannot_be_told_is_an_error_to_its_parent(
    database_url: str, planted: Callable[[str], None], lead: Any
) -> None:
    turns = [turn("A pity.")] if lead is boss else [turn("Waiting."), turn("A pity.")]
    catalog, script = family(boss=lead(*turns), scout=BLUE)
    planted("report_of")
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()

        async def is_failing() -> list[tuple[ReasonCode, str]]:
            return await said_of(run)

        await eventually(is_failing)
        await house.take_nothing_new()
        [child] = await children_of(run)
        tell = ChildFollowup(
            kind=FollowupKind.REPORT_TO_PARENT,
            tenant=ANN.tenant,
            parent_run_id=run.id,
            child_run_id=child.id,
        )
        await until_given_up(house, tell)
        [(code, text)] = await said_of(run)
        assert code is ReasonCode.ERRAND_GIVEN_UP
        assert f"GET /v1/runs/{child.id} says what came of it" in text
    async with replica(database_url, catalog, script) as other:
        run = other.same(run)
        await run.ended()
        told = [text for role, text in texts_of(await run.log()) if role in ("tool", "user")]
        assert "what came of it can't be told" in told[-1]


async def test_the_end_of_a_child_whose_row_cannot_be_read_is_an_error_to_its_parent(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = family(boss=boss(turn("A pity.")), scout=Member([turn(gate, "Blue.")]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        await house.take_nothing_new()
        gate.open.set()
        [child] = await children_of(run)
        await child.ended()
        await house.database.pool.execute(
            """UPDATE runs SET termination = '{"type": "stopped"}' WHERE id = $1""", child.id
        )
        await until_given_up(house, await the_only_one(house, FollowupKind.REPORT_TO_PARENT))
        [(code, text)] = await said_of(run)
        assert (code, child.id in text) == (ReasonCode.ERRAND_GIVEN_UP, True)
        assert (await explain(house.ctx, ANN, run.id)).descendants == ()
    async with replica(database_url, catalog, script) as other:
        run = other.same(run)
        await run.ended()
        assert "what came of it can't be told" in texts_of(await run.log())[-2][1]


async def test_standing_that_cannot_be_shown_keeps_nobody_from_hearing_the_end(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    catalog, script = family(boss=boss(turn("Blue, then.")), scout=Member([turn(gate, "Blue.")]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        [child] = await children_of(run)
        tell = ChildFollowup(
            kind=FollowupKind.REPORT_TO_PARENT,
            tenant=ANN.tenant,
            parent_run_id=run.id,
            child_run_id=child.id,
        )
        with monkeypatch.context() as bug:
            bug.setattr(carried_out, "child_progress", None)
            await until_given_up(house, tell)
        assert await said_of(run) == [], "nothing is left undone"
        gate.open.set()
        await run.ended()
        assert "Blue" in texts_of(await run.log())[-2][1]


async def test_a_child_that_cannot_be_cancelled_is_marked_for_whoever_executes_it(
    database_url: str, planted: Callable[[str], None]
) -> None:
    gate = Gate()
    catalog, script = family(boss=boss(), scout=Member([turn(gate, "Blue.")]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        await house.take_nothing_new()
        planted("cancel")
        assert (await run.cancel()).is_settled
        await until_given_up(house, await the_only_one(house, FollowupKind.CANCEL))
        [child] = await children_of(run)
        [(code, text)] = await said_of(run)
        assert code is ReasonCode.ERRAND_GIVEN_UP
        assert f"POST /v1/runs/{child.id}/cancel" in text
        assert (await child.ended())[-1]["termination"]["type"] == "cancelled"


async def test_a_child_that_waits_and_cannot_be_cancelled_is_ended_by_a_worker(
    database_url: str, planted: Callable[[str], None]
) -> None:
    probe = Probe()
    catalog, script = family(boss=boss(), scout=cautious(probe))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        [child] = await family_of(run, 1)
        await child.finished()
        await house.take_nothing_new()
        planted("cancel")
        assert (await run.cancel()).is_settled
        await until_given_up(house, await the_only_one(house, FollowupKind.CANCEL))
        assert (await child.now()).status is RunStatus.WAITING
    async with replica(database_url, catalog, script) as other:
        said = await other.same(child).ended()
    assert said[-1]["termination"]["type"] == "cancelled"
    assert len(of_type(said, "cancel_requested")) == 1
    assert probe.handed == []
    assert await broken_invariants(database_url) == {}


async def test_messages_that_cannot_be_passed_on_stay_unread(database_url: str) -> None:
    gate = Gate()
    lead = in_the_background(turn("Waiting."), turn("Blue, then."))
    catalog, script = family(boss=lead, scout=Member([turn(gate, "Blue.")]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        await gate.reached.wait()
        await house.take_nothing_new()
        await house.database.pool.execute("""UPDATE tasks SET inbox = '[{"key": "a key"}]'""")
        await until_given_up(house, await the_only_one(house, FollowupKind.FORWARD_MESSAGES))
        [(code, text)] = await said_of(run)
        assert (code, "unread" in text) == (ReasonCode.ERRAND_GIVEN_UP, True)
        gate.open.set()
        [child] = await children_of(run)
        await child.ended()
        await run_followup(house.ctx, await the_only_one(house, FollowupKind.REPORT_TO_PARENT))
        [task] = await list_tasks(house.ctx, ANN, run.id, before=None, limit=1)
        assert (task.status, task.unread_messages) == (TaskStatus.COMPLETED, 1)


async def test_a_child_that_cannot_be_removed_stays_and_can_be_removed_by_hand(
    database_url: str, planted: Callable[[str], None]
) -> None:
    lead = boss(turn("Blue, then."), delegation=Delegation(keep=False))
    catalog, script = family(boss=lead, scout=BLUE)
    planted("delete_thread")
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.ended()
        await house.take_nothing_new()
        [child] = await children_of(run)
        forget = ChildFollowup(
            kind=FollowupKind.FORGET,
            tenant=ANN.tenant,
            parent_run_id=run.id,
            child_run_id=child.id,
        )
        await until_given_up(house, forget)
        [(code, text)] = await said_of(run)
        assert (code, "can be deleted" in text) == (ReasonCode.ERRAND_GIVEN_UP, True)
        assert await overdue(house) == []
        await delete_thread(house.ctx, ANN, child.thread_id, ChildThreads.CASCADE)
        assert await children_of(run) == []


async def test_a_remote_that_cannot_be_told_is_left_alone(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, script = family(boss=BLUE)
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.ended()
        monkeypatch.setattr(dispatch, "abort_remote", None)
        await until_given_up(house, AbortRemote(tenant=ANN.tenant, run_id=run.id))
        [(code, text)] = await said_of(run)
        assert (code, "remote agent" in text) == (ReasonCode.ERRAND_GIVEN_UP, True)


# --- around it ------------------------------------------------------------------------------------


async def test_what_succeeds_in_the_end_leaves_nothing_behind(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, script = family(boss=boss(turn("Blue, then.")), scout=BLUE)
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        start = await the_only_one(house, FollowupKind.START)
        with monkeypatch.context() as bug:
            bug.setattr(carried_out, "child_request", None)
            assert await run_followup(house.ctx, start) == RetryAfter(1.0)
        await house.database.pool.execute("UPDATE failed_errands SET next_at = now()")
        assert await run_followup(house.ctx, start) is None
        assert await said_of(run) == []
        [child] = await children_of(run)
        assert (await child.now()).status is RunStatus.CREATED


async def test_an_errand_that_takes_its_processes_along_is_given_up_as_well(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is late by then, and counts before it is tried."""
    catalog, script = family(boss=boss(turn("Then not.")), scout=BLUE)
    late, died = JobInfo(is_late=True), 0

    def dies(*_: object) -> NoReturn:
        nonlocal died
        died += 1
        raise asyncio.CancelledError

    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        start = await the_only_one(house, FollowupKind.START)
        monkeypatch.setattr(carried_out, "child_request", dies)
        for tries in (MAX_TRIES - 1, MAX_TRIES):
            with pytest.raises(asyncio.CancelledError):
                await run_followup(house.ctx, start, late)
            assert await run_followup(house.ctx, start, late) is not None, "it is left alone"
            await house.database.pool.execute(
                "UPDATE failed_errands SET tries = $1, next_at = now()", tries
            )
        assert await run_followup(house.ctx, start, late) is None
        [(code, _)] = await said_of(run)
        assert (code, died) == (ReasonCode.ERRAND_GIVEN_UP, 2)


async def test_an_errand_that_is_late_and_done_leaves_nothing_behind(database_url: str) -> None:
    catalog, script = family(boss=boss(turn("Blue, then.")), scout=BLUE)
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        start = await the_only_one(house, FollowupKind.START)
        assert await run_followup(house.ctx, start, JobInfo(is_late=True)) is None
        assert await said_of(run) == []
        assert len(await children_of(run)) == 1


async def test_what_cannot_be_settled_either_is_not_given_up(
    database_url: str, planted: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, script = family(boss=boss(turn("Then not.")), scout=BLUE)
    planted("child_request")
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        start = await the_only_one(house, FollowupKind.START)
        with monkeypatch.context() as bug:
            bug.setattr(dispatch, "give_up_followup", None)
            for tries in (MAX_TRIES - 1, MAX_TRIES, MAX_TRIES + 1):
                assert await run_followup(house.ctx, start) is not None
                await house.database.pool.execute(
                    "UPDATE failed_errands SET tries = $1, next_at = now()", tries
                )
        assert (await run.now()).status is RunStatus.WAITING
        assert await run_followup(house.ctx, start) is None
        [(code, _)] = await said_of(run)
        assert code is ReasonCode.ERRAND_GIVEN_UP


async def test_a_broken_errand_keeps_no_other_one_from_being_done(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_times_broken(work: ChildWork, of_parent: JsonObject) -> dict[str, Any]:
        if work.run_id in broken:
            raise KeyError("planted")
        return child_request(work, of_parent)

    broken: set[str] = set()
    monkeypatch.setattr(carried_out, "child_request", at_times_broken)
    catalog, script = family(boss=boss(turn("Blue, then.")), scout=BLUE)
    async with without_errands(database_url, catalog, script) as house:
        ill, well = await house.start(), await house.start()
        for run in (ill, well):
            await run.finished()
        for found in await overdue(house):
            if found.parent_run_id == ill.id:
                broken.add(found.child_run_id)
                assert await run_followup(house.ctx, found) == RetryAfter(1.0)
        async with house.database.reading() as connection:
            [left] = await lost_followups.of_children(connection, grace=0, limit=1)
        assert left.parent_run_id == well.id
    async with replica(database_url, catalog, script) as other:
        await other.same(well).ended()

        async def tried_again() -> bool:
            async with other.database.reading() as connection:
                [failed] = await failed_followups.of_run(connection, ANN.tenant, ill.id)
            return failed.tries > 1

        await eventually(tried_again)
        broken.clear()
        await other.same(ill).ended()
        assert await said_of(other.same(ill)) == []


async def test_a_ticket_that_names_no_child_keeps_no_other_errand_from_being_found(
    database_url: str,
) -> None:
    catalog, script = family(boss=boss(turn("Blue, then.")), scout=BLUE)
    async with without_errands(database_url, catalog, script) as house:
        ill, well = await house.start(), await house.start()
        for run in (ill, well):
            await run.finished()
        await house.database.pool.execute(
            """UPDATE tickets SET evidence = evidence || '{"run_id": "-"}' WHERE run_id = $1""",
            ill.id,
        )
        assert (await the_only_one(house, FollowupKind.START)).parent_run_id == well.id
