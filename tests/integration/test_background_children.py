"""Agents at work in the background: a child run that is a task of its parent's."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from app.agents.catalog import Catalog
from app.api.schemas.background_tasks import task_out
from app.api.schemas.runs import run_out
from app.commands.followups.background_tasks import cancel_task, list_tasks
from app.commands.followups.child_runs import run_child_followup
from app.commands.threads.threads import ChildThreads, delete_thread
from app.domain.agents.specs import Delegation
from app.domain.children.background_tasks import Task, TaskStatus
from app.domain.children.followups import ChildFollowup, FollowupKind
from app.domain.ids import TaskId
from app.domain.runs.runs import Done, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, Termination
from app.domain.threads.messages import Role
from app.llm.scripted.model import Call, Gate, Script, ScriptedTurn, turn
from app.queries import records
from app.queries.explain import ReasonCode, explain
from tests.support.conditions import eventually
from tests.support.families import (
    Member,
    by_transcript,
    cautious,
    children_forgotten,
    children_of,
    family,
    family_of,
    lose_errands,
    overdue,
    work_for,
)
from tests.support.house import ANN, Replica, Run, of_type, replica, texts_of
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

GIVES_WORK = turn(work_for("scout", id="c1"))


def boss(
    *turns: ScriptedTurn | Callable[[TaskId], ScriptedTurn], more: dict[str, object] | None = None
) -> Member:
    """Gives work to the scout and doesn't wait for it."""
    script = by_transcript(GIVES_WORK, *turns)
    return Member(
        script, delegates=["scout"], more={"background": ["agent_run_scout"], **(more or {})}
    )


def tells(text: str, *before: Gate) -> Callable[[TaskId], ScriptedTurn]:
    def play(task_id: TaskId) -> ScriptedTurn:
        told = {"task_id": task_id, "message": text}
        return turn(*before, Call(tool="send_message", arguments=told))

    return play


def takes_back(task_id: TaskId) -> ScriptedTurn:
    return turn(Call(tool="cancel_task", arguments={"task_id": task_id}))


async def task_of(run: Run) -> Task:
    [task] = await list_tasks(run.replica.ctx, ANN, run.id, before=None, limit=50)
    return task


async def task_at(run: Run, status: TaskStatus) -> Task:
    async def look() -> Task | None:
        found = await list_tasks(run.replica.ctx, ANN, run.id, before=None, limit=1)
        return found[0] if [task.status for task in found] == [status] else None

    return await eventually(look)


async def end_of(run: Run) -> Termination:
    async def look() -> Termination | None:
        state = (await run.now()).state
        return state.termination if isinstance(state, Done) else None

    return await eventually(look)


async def followup(run: Run, kind: FollowupKind) -> None:
    """Carry out an errand about the run's only child, as if it had been asked for now."""
    task = await task_of(run)
    assert task.child is not None
    about = ChildFollowup(
        kind=kind,
        tenant=run.record.tenant,
        parent_run_id=run.id,
        child_run_id=task.child.run_id,
    )
    assert await run_child_followup(run.replica.ctx, about)


@asynccontextmanager
async def without_errands(url: str, catalog: Catalog, script: Script) -> AsyncIterator[Replica]:
    """A replica that executes what it has started, and whose errands stay undone."""
    async with replica(url, catalog, script) as house:
        await house.take_nothing_new()
        yield house


# --- from the call to the answer ------------------------------------------------------------------


async def test_the_call_is_over_at_once_and_the_childs_answer_is_the_end_of_its_task(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = family(
        boss=boss(turn("I will wait."), turn("It is blue.")), scout=Member([turn(gate, "Blue.")])
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        waiting = await run.now()
        assert waiting.state == Waiting(WaitingReason.BACKGROUND_TASKS, "awaiting_tasks")
        await gate.reached.wait()
        task, [child] = await task_of(run), await children_of(run)
        assert task_out(task).child_run_id == child.id
        assert (task.status, task.attempt) == (TaskStatus.RUNNING, 1)
        lineage = (await child.now()).lineage
        assert (lineage.parent_run_id, lineage.parent_call_id) == (run.id, "c1")
        gate.open.set()
        said = await run.ended()
        assert said[-1]["result"]["response"] == "It is blue."
        log = await run.log()
        task = await task_of(run)
    assert json.loads(log[2].message.text) == {"task_id": task.id, "status": "running"}
    assert (task.status, task.result) == (
        TaskStatus.COMPLETED,
        {"agent_id": "scout", "status": "completed", "response": "Blue.", "steps": 1},
    )
    assert 'kind="completed"' in log[4].message.text
    assert await broken_invariants(database_url) == {}


async def test_its_progress_and_its_tickets_show_on_its_parent(database_url: str) -> None:
    probe = Probe()
    catalog, script = family(
        boss=boss(turn("I will wait."), turn("It is blue.")),
        scout=cautious(probe, turn("Blue.")),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        [child] = await family_of(run, 1)
        await child.finished()
        await run.until("activity_snapshot", 2)
        await run.finished()
        [asked] = await child.tickets()
        shown = run_out(await records.read_run(house.ctx, ANN, run.id)).waiting or {}
        assert [each["run_id"] for each in shown["tickets_of_children"]] == [child.id]
        found = await explain(house.ctx, ANN, run.id)
        assert [reason.code for reason in found.reasons] == [ReasonCode.WAITING_FOR_TASKS]
        assert "1 of whose tickets are open" in found.reasons[0].text
        assert [ticket.id for ticket in found.waiting_on] == [asked.id]
        await child.decide(asked.name, "approve")
        said = await run.ended()
    progress = [event["content"]["status"] for event in of_type(said, "activity_snapshot")]
    assert progress == ["running", "pending", "done"]


async def test_a_child_that_fails_is_a_task_that_failed(database_url: str) -> None:
    catalog, script = family(boss=boss(turn("Waiting."), turn("A pity.")), scout=Member([]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.ended()
        task = await task_of(run)
    assert task.status is TaskStatus.FAILED
    assert "has failed" in (task.error or "")


async def test_a_child_that_isnt_to_be_kept_leaves_its_answer_with_the_task(
    database_url: str,
) -> None:
    catalog, script = family(
        boss=boss(turn("Waiting."), turn("Blue."), more={"delegation": Delegation(keep=False)}),
        scout=Member([turn("Blue.")]),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.ended()

        await children_forgotten(run)
        task = await task_of(run)
    assert isinstance(task.result, dict)
    assert task.result["response"] == "Blue."


async def test_a_child_survives_the_worker_of_all(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(
        boss=boss(turn("Waiting."), turn("It is blue.")),
        scout=Member([turn(gate, "Lost."), turn("Blue.")]),
    )
    async with (
        replica(database_url, catalog, script) as first,
        replica(database_url, catalog, script) as second,
    ):
        run = await first.start()
        await gate.reached.wait()
        gate.open.set()
        await first.kill()
        run = second.same(run)
        await run.ended()
        assert len(await children_of(run)) == 1
        assert (await task_of(run)).status is TaskStatus.COMPLETED
    assert await broken_invariants(database_url) == {}


# --- taken back -----------------------------------------------------------------------------------


async def test_a_task_that_is_cancelled_takes_its_child_along(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(
        boss=boss(turn("Waiting."), turn("Never mind.")), scout=Member([turn(gate, "Blue.")])
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        await run.finished()
        await cancel_task(house.ctx, ANN, run.id, (await task_of(run)).id)
        [child] = await children_of(run)
        assert isinstance(await end_of(child), Cancelled)
        said = await run.ended()
    assert said[-1]["result"]["response"] == "Never mind."
    assert await broken_invariants(database_url) == {}


async def test_the_model_takes_a_child_back(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(
        boss=boss(takes_back, turn("Never mind.")), scout=Member([turn(gate, "Blue.")])
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        said = await run.ended()
        assert said[-1]["result"]["response"] == "Never mind."
        for child in await children_of(run):
            assert isinstance(await end_of(child), Cancelled)
        task = await task_of(run)
    assert (task.status, task.reported_at is None) == (TaskStatus.CANCELLED, False)


async def test_a_cancelled_parent_takes_its_child_along(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(boss=boss(turn("Waiting.")), scout=Member([turn(gate, "Blue.")]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        await run.finished()
        assert (await run.cancel("enough")).is_settled
        [child] = await children_of(run)
        assert isinstance(await end_of(child), Cancelled)
        assert (await task_of(run)).status is TaskStatus.CANCELLED
    assert await broken_invariants(database_url) == {}


async def test_a_child_that_somebody_cancels_is_a_task_that_was_cancelled(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = family(
        boss=boss(turn("Waiting."), turn("Never mind.")), scout=Member([turn(gate, "Blue.")])
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        [child] = await children_of(run)
        await child.cancel()
        await run.ended()
        assert (await task_of(run)).status is TaskStatus.CANCELLED


async def test_a_task_that_is_cancelled_before_its_child_has_begun_never_has_one(
    database_url: str,
) -> None:
    catalog, script = family(boss=boss(turn("Waiting."), turn("Never mind.")), scout=Member([]))
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        await cancel_task(house.ctx, ANN, run.id, (await task_of(run)).id)
        await followup(run, FollowupKind.CANCEL)
        await followup(run, FollowupKind.START)
        assert await children_of(run) == []
        assert await overdue(house) == []
    async with replica(database_url, catalog, script) as second:
        said = await second.same(run).ended()
        assert await children_of(second.same(run)) == []
    assert said[-1]["result"]["response"] == "Never mind."


async def test_a_child_whose_parent_has_failed_goes_on_and_tells_nobody(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(boss=boss(more={"max_rounds": 1}), scout=Member([turn(gate, "Blue.")]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        said = await run.finished()
        assert said[-1]["termination"]["type"] == "stopped"
        await gate.reached.wait()
        assert await overdue(house) == []
        gate.open.set()
        task = await task_at(run, TaskStatus.COMPLETED)
        assert (await run.until("run_finish"))[-1]["event_type"] == "run_finish"
        assert (await run.now()).open_tasks == 0
    assert task.reported_at is None
    assert await broken_invariants(database_url) == {}


async def test_a_childs_end_and_its_tasks_are_told_once_whichever_comes_first(
    database_url: str,
) -> None:
    catalog, script = family(
        boss=boss(turn("Waiting."), turn("Never mind.")), scout=Member([turn("Blue.")])
    )
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        await followup(run, FollowupKind.START)
        async with replica(database_url, catalog, script) as second:
            [child] = await children_of(second.same(run))
            await end_of(child)
            await task_at(run, TaskStatus.COMPLETED)
            await cancel_task(house.ctx, ANN, run.id, (await task_of(run)).id)
            await followup(run, FollowupKind.REPORT_TO_PARENT)
            await second.same(run).ended()
        assert (await task_of(run)).status is TaskStatus.COMPLETED
        events = [entry for entry in await run.log() if "background-task" in entry.message.text]
    assert len(events) == 1
    assert await broken_invariants(database_url) == {}


async def test_a_child_that_was_deleted_is_a_task_that_failed(database_url: str) -> None:
    catalog, script = family(
        boss=boss(turn("Waiting."), turn("A pity.")), scout=Member([turn("Blue.")])
    )
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        await followup(run, FollowupKind.START)
        [child] = await children_of(run)
        await child.cancel()
        await delete_thread(house.ctx, ANN, child.thread_id, ChildThreads.CASCADE)
        await followup(run, FollowupKind.START)
        assert await children_of(run) == []
        assert [each.kind for each in await overdue(house)] == [FollowupKind.REPORT_TO_PARENT]
    async with replica(database_url, catalog, script) as second:
        await second.same(run).ended()
        task = await task_of(second.same(run))
    assert (task.status, task.error) == (TaskStatus.FAILED, "the agent's run has been deleted")


# --- told something -------------------------------------------------------------------------------


def _told(run_log: list[tuple[str, str]]) -> list[str]:
    return [text for role, text in run_log if role == Role.USER.value]


async def test_a_working_child_reads_what_its_parent_sends(database_url: str) -> None:
    gate, at_work = Gate(), Gate()
    catalog, script = family(
        boss=boss(tells("hurry", at_work), turn("Waiting."), turn("It is blue.")),
        scout=Member([turn(gate, "Nearly."), turn("Blue.")]),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        at_work.open.set()
        await run.finished()
        [child] = await children_of(run)
        await child.until("input_queued")
        gate.open.set()
        await run.ended()
        task = await task_of(run)
        assert _told(texts_of(await child.log())) == ["look it up", "hurry"]
        kept = [json.loads(e.message.text) for e in await run.log() if e.message.tool_call_id]
    assert kept[1]["kept"] is True
    assert task.unread_messages == 0
    assert isinstance(task.result, dict)
    assert task.result["response"] == "Blue."


async def test_a_message_is_passed_on_once_and_not_before_its_child_is_there(
    database_url: str,
) -> None:
    catalog, script = family(
        boss=boss(tells("hurry"), turn("Waiting."), turn("It is blue.")),
        scout=Member(by_transcript(turn("Blue."))),
    )
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        await followup(run, FollowupKind.FORWARD_MESSAGES)
        assert (await task_of(run)).unread_messages == 1
        await followup(run, FollowupKind.START)
        await followup(run, FollowupKind.FORWARD_MESSAGES)
        await followup(run, FollowupKind.FORWARD_MESSAGES)
        await followup(run, FollowupKind.START)
        assert (await task_of(run)).unread_messages == 0
    async with replica(database_url, catalog, script) as second:
        await second.same(run).ended()
        [child] = await children_of(second.same(run))
        assert _told(texts_of(await child.log())) == ["look it up", "hurry"]
    assert await broken_invariants(database_url) == {}


async def test_a_child_that_is_done_gets_no_message(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(
        boss=boss(turn(gate, Call(tool="nothing")), tells("hurry"), turn("It is blue.")),
        scout=Member([turn("Blue.")]),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await task_at(run, TaskStatus.COMPLETED)
        gate.open.set()
        await run.ended()
        [child] = await children_of(run)
        assert _told(texts_of(await child.log())) == ["look it up"]
        told = [e.message.text for e in await run.log() if e.message.tool_call_id]
    assert json.loads(told[-1])["kept"] is False


# --- lost errands ---------------------------------------------------------------------------------


async def test_whatever_errand_is_lost_the_sweeper_finds_it(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(
        boss=boss(tells("hurry"), turn("Waiting."), turn("It is blue.")),
        scout=Member([turn(gate, "Nearly."), turn("Blue.")]),
    )
    async with without_errands(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        await lose_errands(house)
        [start] = await overdue(house)
        assert start.kind is FollowupKind.START
        assert await run_child_followup(house.ctx, start)
        await lose_errands(house)
        [pass_on] = await overdue(house)
        assert pass_on.kind is FollowupKind.FORWARD_MESSAGES
        assert await run_child_followup(house.ctx, pass_on)
        assert await overdue(house) == []
        assert (await run.cancel()).is_settled
        await lose_errands(house)
        [cancel] = await overdue(house)
        assert cancel.kind is FollowupKind.CANCEL
        assert await run_child_followup(house.ctx, cancel)
        assert await overdue(house) == []
        [child] = await children_of(run)
        assert (await child.now()).status is RunStatus.DONE
