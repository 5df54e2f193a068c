"""Background sub-agents: a child run that is a background task of its parent."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from app.agents.catalog import Catalog
from app.api.schemas.background_tasks import TaskOut
from app.api.schemas.runs.run import run_out
from app.commands.followups.background_tasks import cancel_task, list_tasks
from app.commands.followups.child_runs import run_child_followup
from app.commands.threads.threads import ChildThreads, delete_thread
from app.domain.agents.specs import Delegation
from app.domain.children.background_tasks import Task, TaskFilter, TaskStatus
from app.domain.children.followups import ChildFollowup, FollowupKind
from app.domain.ids import TaskId
from app.domain.runs.runs import Done, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, Termination
from app.domain.slices import PageRequest
from app.domain.threads.messages import Role
from app.llm.scripted.model import Call, Gate, Script, ScriptedTurn, turn
from app.queries import records
from app.queries.explain import explain
from app.queries.explain_reasons import ReasonCode
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
    lose_followups,
    opened_below,
    overdue,
    until_children_are_deleted,
    work_for,
)

pytestmark = pytest.mark.anyio

GIVES_WORK = turn(work_for("scout", id="c1"))


def boss(
    *turns: ScriptedTurn | Callable[[TaskId], ScriptedTurn], more: dict[str, object] | None = None
) -> ScriptedAgent:
    """Delegates to the scout in the background and doesn't wait for it."""
    script = by_transcript(GIVES_WORK, *turns)
    return ScriptedAgent(
        script, delegates=["scout"], more={"background": ["agent_run_scout"], **(more or {})}
    )


def sends(text: str, *before: Gate) -> Callable[[TaskId], ScriptedTurn]:
    def play(task_id: TaskId) -> ScriptedTurn:
        arguments = {"task_id": task_id, "message": text}
        return turn(*before, Call(tool="send_message", arguments=arguments))

    return play


def cancels_task(task_id: TaskId) -> ScriptedTurn:
    return turn(Call(tool="cancel_task", arguments={"task_id": task_id}))


async def task_of(run: Run) -> Task:
    [task] = await list_tasks(run.replica.ctx, ANN, run.id, TaskFilter(), PageRequest())
    return task


async def task_with_status(run: Run, status: TaskStatus) -> Task:
    async def task_now() -> Task | None:
        found = await list_tasks(run.replica.ctx, ANN, run.id, TaskFilter(), PageRequest())
        return found[0] if [task.status for task in found] == [status] else None

    return await eventually(task_now)


async def end_of(run: Run) -> Termination:
    async def end_now() -> Termination | None:
        state = (await run.now()).state
        return state.termination if isinstance(state, Done) else None

    return await eventually(end_now)


async def followup(run: Run, kind: FollowupKind) -> None:
    """Execute a follow-up about the run's only child, as if it had just been queued."""
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
async def without_followups(url: str, catalog: Catalog, script: Script) -> AsyncIterator[Replica]:
    """A replica that executes its own runs and takes no follow-ups from the queue."""
    async with open_replica(url, catalog, script) as replica:
        await replica.take_nothing_new()
        yield replica


# --- from the call to the answer ------------------------------------------------------------------


async def test_the_call_returns_at_once_and_the_childs_answer_becomes_the_result_of_its_task(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(turn("I will wait."), turn("It is blue.")),
        scout=ScriptedAgent([turn(gate, "Blue.")]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        waiting = await run.now()
        assert waiting.state == Waiting(WaitingReason.BACKGROUND_TASKS, "awaiting_tasks")
        await gate.reached.wait()
        task, [child] = await task_of(run), await children_of(run)
        assert TaskOut.model_validate(task).child_run_id == child.id
        assert (task.status, task.attempt) == (TaskStatus.RUNNING, 1)
        lineage = (await child.now()).lineage
        assert (lineage.parent_run_id, lineage.parent_call_id) == (run.id, "c1")
        gate.open.set()
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "It is blue."
        log = await run.log()
        task = await task_of(run)
    assert json.loads(log[2].message.text) == {"task_id": task.id, "status": "running"}
    assert (task.status, task.result) == (
        TaskStatus.SUCCEEDED,
        {"agent_id": "scout", "outcome": "succeeded", "response": "Blue.", "steps": 1},
    )
    assert 'outcome="succeeded"' in log[4].message.text
    assert await broken_invariants(database_url) == {}


async def test_progress_and_tickets_of_a_child_are_shown_on_its_parent(database_url: str) -> None:
    probe = Probe()
    catalog, script = agents_with_delegates(
        boss=boss(turn("I will wait."), turn("It is blue.")),
        scout=cautious(probe, turn("Blue.")),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        [child] = await family_of(run, 1)
        await child.finished()
        await run.until("activity_snapshot", 2)
        await run.finished()
        [ticket] = await child.tickets()
        await opened_below(run, 1)
        shown = run_out(await records.read_run(replica.ctx, ANN, run.id)).model_dump()["waiting"]
        assert [each["run_id"] for each in shown["tickets"]] == [child.id]
        found = await explain(replica.ctx, ANN, run.id)
        assert [reason.code for reason in found.reasons] == [ReasonCode.WAITING_FOR_TASKS]
        assert "1 of whose tickets is open" in found.reasons[0].text
        assert [ticket.id for ticket in found.waiting_on] == [ticket.id]
        await child.decide(ticket.name, "approve")
        emitted = await run.ended()
    progress = [event["content"]["status"] for event in of_type(emitted, "activity_snapshot")]
    assert progress == ["running", "waiting", "done"]


async def test_a_failed_child_fails_its_task(database_url: str) -> None:
    catalog, script = agents_with_delegates(
        boss=boss(turn("Waiting."), turn("A pity.")), scout=ScriptedAgent([])
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.ended()
        task = await task_of(run)
    assert task.status is TaskStatus.FAILED
    assert "has failed" in (task.error or "")


async def test_a_child_deleted_after_its_end_leaves_its_answer_in_the_task(
    database_url: str,
) -> None:
    catalog, script = agents_with_delegates(
        boss=boss(turn("Waiting."), turn("Blue."), more={"delegation": Delegation(keep=False)}),
        scout=ScriptedAgent([turn("Blue.")]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.ended()

        await until_children_are_deleted(run)
        task = await task_of(run)
    assert isinstance(task.result, dict)
    assert task.result["response"] == "Blue."


async def test_a_child_and_its_parent_survive_the_loss_of_their_worker(database_url: str) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(turn("Waiting."), turn("It is blue.")),
        scout=ScriptedAgent([turn(gate, "Lost."), turn("Blue.")]),
    )
    async with (
        open_replica(database_url, catalog, script) as first,
        open_replica(database_url, catalog, script) as second,
    ):
        run = await first.start()
        await gate.reached.wait()
        gate.open.set()
        await first.kill()
        run = second.same(run)
        await run.ended()
        assert len(await children_of(run)) == 1
        assert (await task_of(run)).status is TaskStatus.SUCCEEDED
    assert await broken_invariants(database_url) == {}


# --- cancelled ------------------------------------------------------------------------------------


async def test_cancelling_a_task_cancels_its_child(database_url: str) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(turn("Waiting."), turn("Never mind.")), scout=ScriptedAgent([turn(gate, "Blue.")])
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        await run.finished()
        await cancel_task(replica.ctx, ANN, run.id, (await task_of(run)).id)
        [child] = await children_of(run)
        assert isinstance(await end_of(child), Cancelled)
        emitted = await run.ended()
    assert emitted[-1]["result"]["response"] == "Never mind."
    assert await broken_invariants(database_url) == {}


async def test_the_model_can_cancel_a_child_task(database_url: str) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(cancels_task, turn("Never mind.")), scout=ScriptedAgent([turn(gate, "Blue.")])
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "Never mind."
        for child in await children_of(run):
            assert isinstance(await end_of(child), Cancelled)
        task = await task_of(run)
    assert (task.status, task.reported_at is None) == (TaskStatus.CANCELLED, False)


async def test_cancelling_the_parent_cancels_the_child(database_url: str) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(turn("Waiting.")), scout=ScriptedAgent([turn(gate, "Blue.")])
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        await run.finished()
        assert (await run.cancel("enough")).is_done
        [child] = await children_of(run)
        assert isinstance(await end_of(child), Cancelled)
        assert (await task_of(run)).status is TaskStatus.CANCELLED
    assert await broken_invariants(database_url) == {}


async def test_cancelling_a_child_run_cancels_its_task(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(turn("Waiting."), turn("Never mind.")), scout=ScriptedAgent([turn(gate, "Blue.")])
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        [child] = await children_of(run)
        await child.cancel()
        await run.ended()
        assert (await task_of(run)).status is TaskStatus.CANCELLED


async def test_a_task_cancelled_before_its_child_exists_never_starts_one(
    database_url: str,
) -> None:
    catalog, script = agents_with_delegates(
        boss=boss(turn("Waiting."), turn("Never mind.")), scout=ScriptedAgent([])
    )
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        await cancel_task(replica.ctx, ANN, run.id, (await task_of(run)).id)
        await followup(run, FollowupKind.CANCEL)
        await followup(run, FollowupKind.START)
        assert await children_of(run) == []
        assert await overdue(replica) == []
    async with open_replica(database_url, catalog, script) as second:
        emitted = await second.same(run).ended()
        assert await children_of(second.same(run)) == []
    assert emitted[-1]["result"]["response"] == "Never mind."


async def test_a_child_of_a_failed_parent_continues_and_reports_to_no_run(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(more={"max_rounds": 1}), scout=ScriptedAgent([turn(gate, "Blue.")])
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert emitted[-1]["termination"]["type"] == "stopped"
        await gate.reached.wait()
        assert await overdue(replica) == []
        gate.open.set()
        task = await task_with_status(run, TaskStatus.SUCCEEDED)
        assert (await run.until("run_finish"))[-1]["event_type"] == "run_finish"
        assert (await run.now()).open_tasks == 0
    assert task.reported_at is None
    assert await broken_invariants(database_url) == {}


async def test_the_end_of_a_child_and_of_its_task_is_reported_once_in_either_order(
    database_url: str,
) -> None:
    catalog, script = agents_with_delegates(
        boss=boss(turn("Waiting."), turn("Never mind.")), scout=ScriptedAgent([turn("Blue.")])
    )
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        await followup(run, FollowupKind.START)
        async with open_replica(database_url, catalog, script) as second:
            [child] = await children_of(second.same(run))
            await end_of(child)
            await task_with_status(run, TaskStatus.SUCCEEDED)
            await cancel_task(replica.ctx, ANN, run.id, (await task_of(run)).id)
            await followup(run, FollowupKind.REPORT_TO_PARENT)
            await second.same(run).ended()
        assert (await task_of(run)).status is TaskStatus.SUCCEEDED
        events = [entry for entry in await run.log() if "background-task" in entry.message.text]
    assert len(events) == 1
    assert await broken_invariants(database_url) == {}


async def test_deleting_a_child_run_fails_its_task(database_url: str) -> None:
    catalog, script = agents_with_delegates(
        boss=boss(turn("Waiting."), turn("A pity.")), scout=ScriptedAgent([turn("Blue.")])
    )
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        await followup(run, FollowupKind.START)
        [child] = await children_of(run)
        await child.cancel()
        await delete_thread(replica.ctx, ANN, child.thread_id, ChildThreads.CASCADE)
        await followup(run, FollowupKind.START)
        assert await children_of(run) == []
        assert [each.kind for each in await overdue(replica)] == [FollowupKind.REPORT_TO_PARENT]
    async with open_replica(database_url, catalog, script) as second:
        await second.same(run).ended()
        task = await task_of(second.same(run))
    assert (task.status, task.error) == (TaskStatus.FAILED, "the agent's run has been deleted")


# --- messages -------------------------------------------------------------------------------------


def _user_texts(run_log: list[tuple[str, str]]) -> list[str]:
    return [text for role, text in run_log if role == Role.USER.value]


async def test_a_working_child_reads_what_its_parent_sends(database_url: str) -> None:
    gate, at_work = Gate(), Gate()
    catalog, script = agents_with_delegates(
        boss=boss(sends("hurry", at_work), turn("Waiting."), turn("It is blue.")),
        scout=ScriptedAgent([turn(gate, "Nearly."), turn("Blue.")]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        at_work.open.set()
        await run.finished()
        [child] = await children_of(run)
        await child.until("input_queued")
        gate.open.set()
        await run.ended()
        task = await task_of(run)
        assert _user_texts(texts_of(await child.log())) == ["look it up", "hurry"]
        receipts = [json.loads(e.message.text) for e in await run.log() if e.message.tool_call_id]
    assert receipts[1]["kept"] is True
    assert task.unread_messages == 0
    assert isinstance(task.result, dict)
    assert task.result["response"] == "Blue."


async def test_a_message_is_forwarded_once_and_only_after_its_child_exists(
    database_url: str,
) -> None:
    catalog, script = agents_with_delegates(
        boss=boss(sends("hurry"), turn("Waiting."), turn("It is blue.")),
        scout=ScriptedAgent(by_transcript(turn("Blue."))),
    )
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        await followup(run, FollowupKind.FORWARD_MESSAGES)
        assert (await task_of(run)).unread_messages == 1
        await followup(run, FollowupKind.START)
        await followup(run, FollowupKind.FORWARD_MESSAGES)
        await followup(run, FollowupKind.FORWARD_MESSAGES)
        await followup(run, FollowupKind.START)
        assert (await task_of(run)).unread_messages == 0
    async with open_replica(database_url, catalog, script) as second:
        await second.same(run).ended()
        [child] = await children_of(second.same(run))
        assert _user_texts(texts_of(await child.log())) == ["look it up", "hurry"]
    assert await broken_invariants(database_url) == {}


async def test_a_finished_child_takes_no_message(database_url: str) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(turn(gate, Call(tool="nothing")), sends("hurry"), turn("It is blue.")),
        scout=ScriptedAgent([turn("Blue.")]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await task_with_status(run, TaskStatus.SUCCEEDED)
        gate.open.set()
        await run.ended()
        [child] = await children_of(run)
        assert _user_texts(texts_of(await child.log())) == ["look it up"]
        results = [e.message.text for e in await run.log() if e.message.tool_call_id]
    assert json.loads(results[-1])["kept"] is False


# --- lost follow-ups ------------------------------------------------------------------------------


async def test_the_sweeper_queues_lost_followups_again(database_url: str) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=boss(sends("hurry"), turn("Waiting."), turn("It is blue.")),
        scout=ScriptedAgent([turn(gate, "Nearly."), turn("Blue.")]),
    )
    async with without_followups(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        await lose_followups(replica)
        [start] = await overdue(replica)
        assert start.kind is FollowupKind.START
        assert await run_child_followup(replica.ctx, start)
        await lose_followups(replica)
        [pass_on] = await overdue(replica)
        assert pass_on.kind is FollowupKind.FORWARD_MESSAGES
        assert await run_child_followup(replica.ctx, pass_on)
        assert await overdue(replica) == []
        assert (await run.cancel()).is_done
        await lose_followups(replica)
        [cancel] = await overdue(replica)
        assert cancel.kind is FollowupKind.CANCEL
        assert await run_child_followup(replica.ctx, cancel)
        assert await overdue(replica) == []
        [child] = await children_of(run)
        assert (await child.now()).status is RunStatus.DONE
